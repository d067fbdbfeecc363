#pragma once
#include "begin.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Options: define before including the implementation. -----------------------------------------------------------

   SPECDEC_NO_THREADS  no threads but the caller's; threads is always 1
   SPECDEC_NO_FILES    no files opened or mapped; models come as memory (.data, .size)
   SPECDEC_NO_CLOCK    no clock; all measured times are 0
   SPECDEC_NO_SIMD     portable C only, the reference that every instruction set equals; much slower
   SPECDEC_NO_ENCODERS  weights are only read: specdec_type_from_float writes no quantised types; 13 KB less
   SPECDEC_NO_NAMES    without configuration by name: specdec_config_set and specdec_settings_set are refused; 9 KB less
   SPECDEC_FREESTANDING  the first three, SPECDEC_NO_ENCODERS, SPECDEC_NO_TEMPLATES and SPECDEC_NO_NAMES at once; what
                       gcc -Os makes of C then has no tables for unwinding in memory either
   SPECDEC_NO_SSE41, SPECDEC_NO_AVX2, SPECDEC_NO_AVXVNNI, SPECDEC_NO_AVX512, SPECDEC_NO_DOTPROD, SPECDEC_NO_I8MM,
   SPECDEC_NO_NEON32, SPECDEC_NO_RVV
                       without that instruction set: a processor that has it uses the best of the others. NEON32 is that
                       of 32-bit ARM, with VFPv4; RVV, RISC-V's vectors, needs clang (19 was tried), -march=rv64gcv
   SPECDEC_TYPES(X)    the types of weights that are read besides F32, F16, BF16 and Q8_0, as a list:
                       #define SPECDEC_TYPES(X) X(Q4_K) X(Q6_K). A model with others is refused. If it is not
                       defined: all of them
   SPECDEC_NO_SPM      without the tokenizer of SentencePiece (tokenizer.ggml.model "llama"): a model of it is refused
   SPECDEC_NO_BPE      the same for byte-level BPE ("gpt2"); 10 KB less, of which 3 are a table of all characters
   SPECDEC_NO_VERIFIERS  only coupled and greedy verification, which write the text of plain decoding; 4 KB less
   SPECDEC_NO_CHAT     without chat formats: specdec_chat is refused; 79 KB less
   SPECDEC_NO_TEMPLATES  without running chat templates: config.chat_format must name the format; 72 KB less
   SPECDEC_NO_SAVE     specdec_save and specdec_load are refused; 8 KB less
   SPECDEC_NO_HEADS    without drafts that read the target's states: config.heads counts for nothing; 23 KB less
   SPECDEC_NO_TRIFORCE  without two levels of speculation: SPECDEC_DRAFT_TRIFORCE is refused; 6 KB less
   SPECDEC_NO_NGRAM    without drafts by n-grams: SPECDEC_DRAFT_NGRAM is refused; 11 KB less
   SPECDEC_NO_CONSTRAINTS  without constraints: specdec_constraint_init is refused; 96 KB less
   SPECDEC_NO_EXPERTS  without mixtures of experts: a model of these is refused; 7 KB less
   SPECDEC_NO_RECURRENT  without recurrent layers (LFM2, Qwen3.5, Mamba-2): a model with some is refused; 21 KB less
   SPECDEC_NO_SEQUENCES  one sequence an engine, no forks: specdec_open, config.sequences above 1 are refused; 5 KB less
   SPECDEC_CLUSTER     with config.cluster, the target's layers on several machines; it is left out otherwise
   SPECDEC_NO_ERROR_TEXTS  errors are codes (see specdec_result_text) without words of their own, and the log is
                       silent; 28 KB less
   SPECDEC_STATIC      all functions are static: for a program of one file, which then holds only what it calls
   SPECDEC_DEF         what every declaration begins with, such as an attribute that exports it from a library. extern
   SPECDEC_KERNELS_APART  without the kernels for AVX2 and AVX-512, which another file brings that defines
                       SPECDEC_KERNELS besides SPECDEC_IMPLEMENTATION: both compile side by side
   SPECDEC_WINDOWS_AVX on Windows gcc uses AVX, too. It is off there as it may crash, unless gcc was mended, as those of
                       Debian and MSYS2, or is given -Wa,-muse-unaligned-vector-move. clang needs no such word
   SPECDEC_FILE        under which name this file includes itself. Only compilers without __FILE_NAME__ (gcc before 12,
                       clang before 9) must be told, and only where it is not "specdec.h": #define SPECDEC_FILE "mine.h"
   SPECDEC_MAX_THREADS threads of an engine, at most. 64 */

#define SPECDEC_VERSION "0.11.1"
#define SPECDEC_VERSION_NUMBER 1101 /* major * 10000 + minor * 100 + patch */

#ifndef SPECDEC_MAX_THREADS
#define SPECDEC_MAX_THREADS 64
#endif

#if defined(SPECDEC_STATIC) || defined(SPECDEC_KERNELS)
#undef SPECDEC_DEF
#define SPECDEC_DEF static __attribute__((unused))
#elif !defined(SPECDEC_DEF)
#define SPECDEC_DEF extern
#endif

/* ---- Results ----------------------------------------------------------------------------------------------------- */

#define SPECDEC_RESULTS(X) \
    X(OK, "no error") \
    X(DONE, "nothing more to write: end of text, a stop string, the token limit or the end of the context") \
    X(PENDING, "nothing to hand out yet: specdec_work goes on") \
    X(ERROR_ARGUMENT, "an argument or a configuration value is out of range") \
    X(ERROR_MEMORY, "the memory block is too small") \
    X(ERROR_BUFFER, "the caller's buffer is too small; the needed count has been returned") \
    X(ERROR_FILE, "a file cannot be opened, read or mapped") \
    X(ERROR_FORMAT, "a file does not hold what its format promises") \
    X(ERROR_UNSUPPORTED, "well-formed, but of a kind that is not supported") \
    X(ERROR_MISMATCH, "two things do not belong together: target and draft, or a file and the model") \
    X(ERROR_CONTEXT, "the text does not fit into the context, whatever others hold") \
    X(ERROR_CANCELLED, "cancelled by specdec_cancel or the progress hook") \
    X(ERROR_SYSTEM, "the operating system refused a thread") \
    X(ERROR_PEER, "another rank of the cluster failed, was lost, or sent what makes no sense") \
    X(ERROR_FULL, "the cache that all sequences share is full: once one is closed or cut, the call may be repeated")

typedef enum specdec_result {
#define SPECDEC__RESULT(name, text) SPECDEC_##name,
    SPECDEC_RESULTS(SPECDEC__RESULT)
#undef SPECDEC__RESULT
    SPECDEC_RESULT_COUNT
} specdec_result;

#define SPECDEC_ERROR_TEXT_SIZE 240

/* A failed call's result and a text that names the tensor, key or token at fault. Only calls that fail write to it. */
typedef struct specdec_error {
    specdec_result code;                /* what kind of error */
    char text[SPECDEC_ERROR_TEXT_SIZE]; /* a sentence for people */
} specdec_error;

/* Returns the constant text of a result, such as "the memory block is too small". */
SPECDEC_DEF const char *specdec_result_text(specdec_result result);

/* Returns the version of the linked implementation, such as "0.6.0". */
SPECDEC_DEF const char *specdec_version(void);

/* ---- Configuration: what an engine is made of. ------------------------------------------------------------------- */

typedef struct specdec specdec;             /* a handle: a sequence and its engine, in the caller's memory */
typedef struct specdec_constraint specdec_constraint; /* a grammar or schema that answers obey: see below */
typedef struct specdec_model specdec_model; /* a prepared model that several engines share */

/* Where a model comes from: `model`, `data` or `path`, the first of these that is set. */
typedef struct specdec_source {
    const specdec_model *model; /* prepared by specdec_model_init; must outlive the engine */
    const void *data;           /* a whole GGUF file in memory (flash, an array), size bytes; must outlive the engine */
    size_t size;                /* bytes at data */
    const char *path;           /* a GGUF file, or the first of a model in several (NAME-00001-of-00003.gguf), with the
                                   others beside it. It is mapped: one that shrinks kills the process (SIGBUS) */
    int copy;                   /* not 0: the file is read into the block, which grows by its size, instead of mapped */
} specdec_source;

#define SPECDEC_FORK_TOKENS 16 /* tokens that a child can begin with, at most */

/* Functions of the caller's. All but `thread` are called from the thread that called the library, and may call no
   function but specdec_cancel. Any may be NULL. */
typedef struct specdec_hooks {
    void *user_data; /* the first argument of each hook */
    /* done of total units of what: "repack" (matrices) and "ranks" (that have come) in specdec_init, "prefill" (tokens)
       in specdec_prompt and the like, where these read at once. Anything but 0 ends the call with CANCELLED. */
    int (*progress)(void *user_data, const char *what, int done, int total);
    /* One line about the engine and its work; it begins with "warning: " where something that a file lacks may spoil
       the text. No newline; the line is gone after the call. */
    void (*log)(void *user_data, const char *line);
    /* Asked after each decoded token, the last of tokens[count]: shall the sequence fork here? Returns how many tokens
       the child begins with, written to child[SPECDEC_FORK_TOKENS]; 0: no fork. Must be a function of the tokens
       alone. */
    int (*fork)(void *user_data, const int32_t *tokens, int count, int32_t *child);
    /* Called by each helper thread at its start, to choose its processor or priority. number: 1 to threads - 1, or
       threads: the thread that drafts while others verify (with config.async above 1, also the last ones before it). */
    void (*thread)(void *user_data, int number);
} specdec_hooks;

/* A number that is added to the logit of a token; -INFINITY forbids the token. */
typedef struct specdec_bias {
    int32_t token; /* token id */
    float bias;    /* added to its logit */
} specdec_bias;

/* Samplers: X(NAME, name in lists), in their default order, which is that of llama.cpp. */
#define SPECDEC_SAMPLERS(X) \
    X(PENALTIES, "penalties") \
    X(DRY, "dry") \
    X(TOP_N_SIGMA, "top_n_sigma") \
    X(TOP_K, "top_k") \
    X(TYPICAL, "typ_p") \
    X(TOP_P, "top_p") \
    X(MIN_P, "min_p") \
    X(XTC, "xtc") \
    X(TEMPERATURE, "temperature")

typedef enum specdec_sampler {
    SPECDEC_SAMPLER_NONE,
#define SPECDEC__SAMPLER(NAME, name) SPECDEC_SAMPLER_##NAME,
    SPECDEC_SAMPLERS(SPECDEC__SAMPLER)
#undef SPECDEC__SAMPLER
    SPECDEC_SAMPLER_COUNT
} specdec_sampler;

#define SPECDEC__SAMPLER_NAME(NAME, name) "|" name
#define SPECDEC_SAMPLER_NAMES (&"" SPECDEC_SAMPLERS(SPECDEC__SAMPLER_NAME)[1]) /* "penalties|dry|..." */

/* How tokens are chosen. {0}: greedily. Biases come first, then the samplers in their order. All of them are functions
   of the text, the position and the seed, so the text is the same with and without draft tokens. */
typedef struct specdec_sampling {
    float temperature;         /* up to 1e6; 0: greedy: of the members below only biases, penalties and dry_ are used */
    int32_t top_k;             /* keep the k best tokens; 0: off */
    float top_p;               /* keep the fewest best tokens that hold this probability (of those kept); 0 or 1: off */
    float min_p;               /* keep tokens at least this probable, relative to the best; 0: off */
    float repetition_penalty;  /* up to 1e6; divides positive logits of recent tokens, multiplies others; 0 or 1: off */
    int32_t repetition_window; /* how many recent tokens the penalties look at; 0: 64, -1: all that are given */
    uint64_t seed;             /* the text is a function of prompt, target, seed; with rejection rules also of trees */
    const specdec_bias *biases; /* [bias_count]; a token named twice gets both, unknown ids are skipped */
    int bias_count;            /* how many biases there are */
    float frequency_penalty;   /* times how often a token is in the window, is subtracted from its logit; 0: off */
    float presence_penalty;    /* is subtracted from the logits of all tokens in the window; 0: off */
    float dry_multiplier;      /* a token that would lengthen a repetition of at least dry_allowed_length tokens loses
                                  dry_multiplier * dry_base^(its length - dry_allowed_length); 0: off */
    float dry_base;            /* at least 1; 0: 1.75 */
    int32_t dry_allowed_length; /* of repetitions, in tokens; 0: 2 */
    int32_t dry_window;        /* recent tokens that are searched for repetitions; 0: all that are given */
    char dry_breakers[16];     /* characters: a repetition ends at a token that has one of them; "": line feed : " *
                                  (only in engines, whose tokens have characters) */
    float top_n_sigma;         /* keep logits at most so many standard deviations below the best; 0: off */
    float typical_p;           /* keep the fewest tokens whose surprise is nearest the mean and that hold this
                                  probability; 0 or 1: off */
    float xtc_probability;     /* how often, by position, all but the least probable of the tokens at least
                                  xtc_threshold probable are removed; 0: off */
    float xtc_threshold;       /* 0: 0.1; above 0.5: off */
    float temperature_range;   /* the temperature is up to this much lower or higher, by the entropy; 0: off */
    float temperature_exponent; /* exponent of the entropy over the largest possible one; 0: 1 */
    float mirostat_tau;        /* mean surprise, in bits, that an answer's tokens shall have: mirostat 2, which follows
                                  biases and temperature and replaces all other samplers. 0: off */
    float mirostat_rate;       /* mirostat's learning rate; 0: 0.1 */
    unsigned char samplers[16]; /* which samplers, in which order (specdec_sampler), 0 behind the last; {0}: all */
} specdec_sampling;

#define SPECDEC_STOP_STRINGS 32 /* stop strings of a sequence, of 1 to 256 bytes each */
#define SPECDEC_STOP_BYTES 1792 /* bytes of all its stop strings together */
#define SPECDEC_END_TOKENS 8    /* end tokens in settings */

/* A constraint as a function of the caller's: clears the bits of tokens that may not follow tokens[count] (bit token %
   32 of mask[token / 32]); end tokens have bits, too. Must be a function of the tokens alone: it is called for every
   node of a token tree, with draft tokens at the end of tokens. If no bit is left, the answer ends. */
typedef void (*specdec_allow)(void *user_data, const int32_t *tokens, int count, uint32_t *mask);

/* How a sequence is continued. {0} is good: greedily, until the model ends the answer. Stop strings are copied; biases
   must stay valid until other settings replace them. */
typedef struct specdec_settings {
    specdec_sampling sampling;              /* how tokens are chosen */
    int max_tokens;                         /* tokens of an answer, at most; 0: as many as the context holds */
    int slide;                              /* a full context keeps this many first tokens and the younger half of the
                                               others, two at least, and the answer continues (see specdec_tokens); 0:
                                               no */
    const char *stop[SPECDEC_STOP_STRINGS]; /* end the answer, are not part of it; the first NULL ends the list. The
                                               text of a control token makes that token an end token, too */
    int show_special;                       /* not 0: control tokens such as <|im_end|> are returned as text */
    int top_logprobs;                       /* log-probabilities of later tokens come with the k best, config.logprobs
                                               at most; 0: with all of these, -1: none are computed */
    int32_t end_tokens[SPECDEC_END_TOKENS]; /* (end_token_count) end the answer besides those that the model has;
                                               unknown ids are skipped */
    int end_token_count;                    /* how many end_tokens there are */
    int min_tokens;                         /* no token that ends the answer is chosen before it has this many tokens */
    int ignore_end;                         /* not 0: the model's tokens that end an answer are never chosen */
    const specdec_constraint *constraint;   /* a constraint that the answer obeys from its first token, or from where it
                                               is set; NULL: none. Where the constraint is complete, the model may end
                                               the answer; where nothing more can follow, the answer ends. Where only
                                               one continuation is possible, its tokens are those of the model's
                                               tokenizer. Must stay valid until other settings replace it */
    const specdec_constraint *calls;        /* a constraint of each call of a tool, from its mark on, in answers that
                                               are taken in parts: made of SPECDEC_CONSTRAINT_TOOLS; NULL: none */
    specdec_allow allow;                    /* NULL, or a caller's rule for tokens that may follow, besides
                                               constraint */
    void *allow_data;                       /* the user_data of allow */
} specdec_settings;

/* The drafters: X(name, kind in >>speculation/draft, name on command lines).
   SPECDEC_DRAFT_MODEL: the draft model, always the same tree (dynamic: the same size and depth); or, as its file says,
   an assistant, which reads the target's keys, or a block drafter: DFlash, DFlash2, DSpark;
   SPECDEC_DRAFT_HEADS: heads that read the target's state: no cache, few levels; or EAGLE-3: a layer, with a cache;
   SPECDEC_DRAFT_MTP: the block in the model's own files that predicts a token further on, with a small cache;
   SPECDEC_DRAFT_TRIFORCE: the target itself with config.retrieval tokens of the text, for which the draft model or
   n-grams guess: two levels, for long texts (Sun et al. 2024, arXiv 2404.11912). auto: only if retrieval is set;
   SPECDEC_DRAFT_NGRAM: what followed the same tokens before, in prompt and answer; no model, no training;
   SPECDEC_DRAFT_FORCED: what a constraint leaves no choice about. auto: only if config.constraints is set. */
#define SPECDEC_DRAFTERS(X) \
    X(MODEL, model, "draft") \
    X(HEADS, heads, "heads") \
    X(MTP, mtp, "mtp") \
    X(TRIFORCE, recall, "triforce") \
    X(NGRAM, ngram, "ngram") \
    X(FORCED, forced, "forced")

/* Names of drafters in the order of specdec_drafting, "auto|off|draft|...". */
#define SPECDEC__DRAFTER_NAME(NAME, kind, name) "|" name
#define SPECDEC_DRAFTINGS "auto|off" SPECDEC_DRAFTERS(SPECDEC__DRAFTER_NAME)

/* Where draft tokens come from. */
typedef enum specdec_drafting {
    SPECDEC_DRAFT_AUTO, /* all drafters, at every step in the tree that is measured to be fastest, or none */
    SPECDEC_DRAFT_OFF,  /* one token a step, even with a draft model */
#define SPECDEC__DRAFTER(NAME, kind, name) SPECDEC_DRAFT_##NAME,
    SPECDEC_DRAFTERS(SPECDEC__DRAFTER)
#undef SPECDEC__DRAFTER
    SPECDEC_DRAFT_COUNT
} specdec_drafting;

/* How draft tokens are accepted. All rules are lossless: coupled gives the very text of plain decoding with the same
   seed; the next four, for comparison, give texts of the same distribution, from one drafter that is a model, heads or
   two levels. At temperature 0 all rules are the same. Sequoia, SpecInfer and SpecTr need children drawn from the
   draft's distribution as noted, and a tree whose shape does not depend on drawn tokens (but may on probabilities). */
typedef enum specdec_rule {
    SPECDEC_RULE_COUPLED,   /* any children; draft and target share the noise: Daliri et al. 2024, arXiv 2408.07978 */
    SPECDEC_RULE_SEQUOIA,   /* children without replacement (specdec_sample_top): Chen et al. 2024, arXiv 2402.12374 */
    SPECDEC_RULE_SPECINFER, /* children with replacement: Miao et al. 2024, arXiv 2305.09781 */
    SPECDEC_RULE_SPECTR,    /* children with replacement, k-sequential selection: Sun et al. 2023, arXiv 2310.15141 */
    SPECDEC_RULE_TOP_K,     /* any children; the target draws and a child that equals its token is accepted */
    SPECDEC_RULE_GREEDY,    /* any children; the target's most probable token, the lowest of equals. Not for engines:
                               theirs is temperature 0 */
    SPECDEC_RULE_COUNT
} specdec_rule;

/* How the shape of the draft model's trees is chosen. The text is the same with all where the rule promises so. */
typedef enum specdec_policy {
    SPECDEC_POLICY_AUTO,    /* dynamic where the engine chooses the drafters (SPECDEC_DRAFT_AUTO), else static */
    SPECDEC_POLICY_STATIC,  /* from tables, by acceptance so far: Sequoia, Chen et al. 2024, arXiv 2402.12374 */
    SPECDEC_POLICY_DYNAMIC, /* grown from its probabilities; coupled, top-k alone: Li et al. 2024, arXiv 2406.16858 */
    SPECDEC_POLICY_COUNT
} specdec_policy;

/* Whether greedy and coupled steps read only five of the eight bits of a large output matrix, and the other three only
   of rows whose logit can be the largest. The text is the same. */
typedef enum specdec_screening {
    SPECDEC_SCREENING_AUTO,   /* where it is faster: 8-bit matrices of 100,000 rows and more, instruction sets with
                                 kernels for it */
    SPECDEC_SCREENING_OFF,
    SPECDEC_SCREENING_ALWAYS, /* any 8-bit output matrix */
    SPECDEC_SCREENING_COUNT
} specdec_screening;

/* A target whose layers are on several machines, the ranks. Each rank makes an engine with the same configuration,
   except for rank, threads and drafters. Only rank 0 has drafters; one other rank may have config.draft alone, and no
   target, to draft for rank 0 (coupled). Rank 0 is used as any engine, the other ranks call specdec_serve. The
   functions below are called from the engine's thread. */
typedef struct specdec_cluster {
    int rank, ranks;   /* this machine's number, and how many ranks there are, 1..64 */
    const int *layers; /* [ranks] layers of each rank, in order; rank 0 may have none, a rank that only drafts has
                          none */
    double silence;    /* seconds until a silent rank counts as lost: more than layers and rank 0's pauses take. 8 times
                          as long may a rank load, a message take, or no work proceed though all are heard. 0: never */
    void *user_data;   /* the first argument of each function */
    /* Sends a copy of a message to a rank. Two messages to a rank arrive in order, urgent ones in an order of their
       own. Returns 0 when it cannot. */
    int (*send)(void *user_data, int rank, int urgent, const void *message, size_t size);
    /* Receives the next message of a rank, or with -1 the next urgent message of any rank. Copies at most room bytes of
       it. Returns its size; 0: there is none yet. */
    size_t (*receive)(void *user_data, int rank, void *message, size_t room);
    void (*wait)(void *user_data, double seconds); /* waits until a message may have come, at most so long */
    void (*layer)(void *user_data, int nodes);     /* NULL, or called behind every layer of a run of so many nodes */
} specdec_cluster;

#define SPECDEC_MAX_LOGPROBS 64

/* Chat formats: how the messages of a conversation are written. */
#define SPECDEC_CHAT_FORMATS \
    "zephyr|chatml|chatml-think|llama2|llama3|mistral|mistral-v3|mistral-v7|gemma|phi3|phi4|phi4-mini|granite|tulu|" \
    "deepseek-r1"

#define SPECDEC_MAX_SEQUENCES 1024

/* The configuration of an engine. {0} with a target is a good one. It is copied, strings are read in specdec_init; the
   memory that sources, settings and cluster point to must stay valid: see WHAT MUST STAY VALID. */
typedef struct specdec_config {
    specdec_source target;      /* the model that decodes */
    specdec_source draft;       /* optional draft model: of the target's vocabulary, or a drafter made for the target */
    specdec_source heads;       /* optional: an MLP speculator, Medusa heads or EAGLE-3, trained for the target */
    specdec_settings settings;  /* of the first sequence and of opened ones; specdec_set changes those of a sequence */
    int context;                /* tokens of a sequence, prompt included, at most 2^24; 0: the model's, at most 4096 */
    int sequences;              /* sequences that can be open at once, 1..1024; 0: 1 */
    int cache;                  /* tokens of all sequences (shared ones once), up to 2^30; 0: sequences * context */
    const char *fork_token;     /* name or id: a sequence that writes it forks; "": none; NULL: "[Fork]", if any */
    const char *child_token;    /* the child begins with this token (NULL: "[Child]"); needs several sequences */
    int prefixes;               /* closed sequences in the prefix cache, at most 2^16; 0: four for each sequence, 64
                                   to 256; -1: none. See specdec_drop_prefixes */
    int forks;                  /* forks of a sequence between two prompts, at most (itself at most 2^24); 0: 16 */
    int fork_depth;             /* forks of forks, at most 8 deep; 0: 2 */
    int history;                /* tokens of closed sequences for n-grams, of 230 bytes each, up to 2^24; 0: none */
    int prefill_chunk;          /* prompt tokens of a step beside decoding, up to 2^30; 0: a third of its time */
    int threads;                /* 0: all processors, fewer for small models (one for each 4 MB of weights) */
    int batch;                  /* prompt tokens a step, 1..512; buffers grow with it; 0: 64 */
    int checkpoint;             /* tokens between checkpoints of a recurrent model, a state each, where a sequence can
                                   be cut; 0: a quarter of the context, at least 256 */
    int weights_in_place;       /* not 0: matrices are not repacked: slower, but without a copy in memory */
    int vocabulary_only;        /* not 0, for specdec_model_init: no weights, only what specdec_tokenize needs */
    int constraints;            /* not 0: sequences may have constraints (settings.constraint, settings.allow); takes
                                   some 200 bytes for each token of the vocabulary, and 2 KB a sequence. Set if settings
                                   have one */
    int logprobs;               /* k > 0 (at most 64): log-probabilities of written tokens are stored, with the k best
                                   at their positions: 8 (k + 1) bytes for each token of the context */
    const char *kv;             /* type of the cache of keys and values: "f16" (also NULL), "f32", "q8_0" */
    const char *isa;            /* instruction set by name; NULL: the best this CPU has. All give the same bits */
    const char *chat_format;    /* one of SPECDEC_CHAT_FORMATS; NULL: the model's */
    int async;                  /* threads that keep drafting while the others verify, for one sequence alone, coupled;
                                   0: one, where that was measured to be faster; -1: none */
    specdec_drafting drafting;  /* which drafters take part */
    specdec_rule rule;          /* how draft tokens are accepted */
    specdec_policy policy;      /* how the draft model's trees are shaped */
    specdec_screening screening; /* whether the output matrix is screened */
    int retrieval;              /* tokens that "triforce" attends to, from 16 on; 0: an eighth of the context */
    int retrieval_chunk;        /* consecutive tokens that "triforce" chooses together, 1..64; 0: 8 */
    int draft_vocabulary;       /* rows of its output matrix that a drafter multiplies, those of frequent tokens,
                                   copied; 0: a twelfth, at least 8192, where and while that is faster; -1: all */
    int tree_size;              /* nodes of the token tree, root included, 2..64; buffers grow with it; 0: 8 (auto: up
                                   to 32), 1 without drafters */
    int tree_depth;             /* levels of the tree, root included; tree_size: a chain; 0: at most 5 (auto: 12) */
    const specdec_cluster *cluster; /* the ranks that hold the target's layers; NULL: this machine alone */
    specdec_hooks hooks;        /* functions of the caller's */
} specdec_config;

/* ---- Settings and configuration by name: for bindings, for flags, for files. ------------------------------------

   X(name, member, kind, low, high, words, help): a member of specdec_settings, or of specdec_config, and the name and
   kind of text that sets it. Whole and real numbers lie in [low, high], or are 0: the default. words: the texts that
   are taken, in the order of the enumeration. Strings stay the caller's, and must stay valid until the configuration or
   the settings are used. POINTER: no text can be that. Every member has a row. */
#define SPECDEC_SETTINGS_FIELDS(X) \
    X("temperature", sampling.temperature, REAL, 0, 1e6, NULL, \
      "temperature; 0: greedy, always the most probable token (0)") \
    X("top_k", sampling.top_k, INTEGER, 0, 1 << 24, NULL, "sample among the N best tokens; 0: off (0)") \
    X("top_p", sampling.top_p, REAL, 0, 1, NULL, "sample among the best that hold this probability; 0 or 1: off (1)") \
    X("min_p", sampling.min_p, REAL, 0, 1, NULL, "not below this share of the best one's probability; 0: off (0)") \
    X("repetition_penalty", sampling.repetition_penalty, REAL, 0, 1e6, NULL, "against repetition; 0 or 1: off (1)") \
    X("repetition_window", sampling.repetition_window, INTEGER, -1, 1 << 24, NULL, \
      "tokens it looks back; -1: all (64)") \
    X("seed", sampling.seed, SEED, 0, 0, NULL, "the text is a function of prompt, models, flags and seed (0)") \
    X("biases", sampling.biases, POINTER, 0, 0, NULL, "what is added to the logits of some tokens") \
    X("bias_count", sampling.bias_count, POINTER, 0, 0, NULL, "how many those are") \
    X("frequency_penalty", sampling.frequency_penalty, REAL, -1e3, 1e3, NULL, \
      "against repetition, for each time that a token is there; 0: off (0)") \
    X("presence_penalty", sampling.presence_penalty, REAL, -1e3, 1e3, NULL, "the same, once a token is there (0)") \
    X("dry_multiplier", sampling.dry_multiplier, REAL, 0, 1e6, NULL, \
      "DRY: against lengthening what was written before; 0: off (0)") \
    X("dry_base", sampling.dry_base, REAL, 1, 1e6, NULL, "its base; 0: 1.75 (0)") \
    X("dry_allowed_length", sampling.dry_allowed_length, INTEGER, 0, 1 << 24, NULL, \
      "repetitions of fewer tokens are left alone; 0: 2 (0)") \
    X("dry_window", sampling.dry_window, INTEGER, 0, 1 << 24, NULL, "tokens it looks back; 0: all (0)") \
    X("dry_breakers", sampling.dry_breakers, CHARACTERS, 0, 15, NULL, \
      "characters that end a repetition (line feed, colon, quotation mark, star)") \
    X("top_n_sigma", sampling.top_n_sigma, REAL, 0, 1e6, NULL, \
      "logits within N standard deviations of the best; 0: off (0)") \
    X("typical_p", sampling.typical_p, REAL, 0, 1, NULL, \
      "sample among the most typical that hold this probability; 0 or 1: off (1)") \
    X("xtc_probability", sampling.xtc_probability, REAL, 0, 1, NULL, \
      "XTC: how often all but the least of the probable tokens are removed; 0: off (0)") \
    X("xtc_threshold", sampling.xtc_threshold, REAL, 0, 1, NULL, "from which probability on; 0: 0.1 (0)") \
    X("temperature_range", sampling.temperature_range, REAL, 0, 1e6, NULL, \
      "the temperature is up to so much lower or higher, by the entropy; 0: off (0)") \
    X("temperature_exponent", sampling.temperature_exponent, REAL, 0, 1e3, NULL, "of the entropy there; 0: 1 (0)") \
    X("mirostat_tau", sampling.mirostat_tau, REAL, 0, 1e3, NULL, \
      "mirostat 2: the surprise in bits that tokens shall have, in place of other samplers; 0: off (0)") \
    X("mirostat_rate", sampling.mirostat_rate, REAL, 0, 1e3, NULL, "how fast it learns; 0: 0.1 (0)") \
    X("samplers", sampling.samplers, SEQUENCE, 0, 0, SPECDEC_SAMPLER_NAMES, \
      "samplers in their order, separated by ; (penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)") \
    X("max_tokens", max_tokens, INTEGER, 0, 1 << 24, NULL, \
      "tokens after a prompt, at most; 0: as many as the context holds (0)") \
    X("slide", slide, INTEGER, 0, 1 << 24, NULL, \
      "a full context keeps its first N tokens and the younger half of the others, and goes on; 0: off (0)") \
    X("stop", stop, LIST, 1, 256, NULL, "ends the text, and is not part of it; may be given several times") \
    X("end_tokens", end_tokens, POINTER, 0, 0, NULL, "tokens that end the answer, besides those that the model has") \
    X("end_token_count", end_token_count, POINTER, 0, 0, NULL, "how many those are") \
    X("min_tokens", min_tokens, INTEGER, 0, 1 << 24, NULL, "the answer does not end before so many tokens (0)") \
    X("ignore_end", ignore_end, SWITCH, 0, 1, NULL, "the model's tokens that end an answer are never chosen") \
    X("show_special", show_special, SWITCH, 0, 1, NULL, "control tokens are written, too") \
    X("top_logprobs", top_logprobs, INTEGER, -1, SPECDEC_MAX_LOGPROBS, NULL, \
      "log-probabilities come with the N best; 0: all that are kept (logprobs), -1: none are worked out (0)") \
    X("constraint", constraint, POINTER, 0, 0, NULL, "what an answer obeys") \
    X("calls", calls, POINTER, 0, 0, NULL, "what calls of tools obey") \
    X("allow", allow, POINTER, 0, 0, NULL, "a function that says which tokens may follow") \
    X("allow_data", allow_data, POINTER, 0, 0, NULL, "what that function is given")

#define SPECDEC_CONFIG_FIELDS(X) \
    X("threads", threads, INTEGER, 0, SPECDEC_MAX_THREADS, NULL, \
      "threads; 0: all processors, fewer for small models (0)") \
    X("context", context, INTEGER, 0, 1 << 24, NULL, "tokens of context; 0: the model's own, at most 4096 (0)") \
    X("batch", batch, INTEGER, 0, 512, NULL, "tokens of the prompt that are read at once; 0: 64 (0)") \
    X("sequences", sequences, INTEGER, 0, SPECDEC_MAX_SEQUENCES, NULL, "sequences that are open at once; 0: 1 (0)") \
    X("cache", cache, INTEGER, 0, 1 << 30, NULL, "tokens of all sequences together; 0: sequences times context (0)") \
    X("prefixes", prefixes, INTEGER, -1, 1 << 16, NULL, \
      "closed sequences in the prefix cache; 0: four for each, 64 to 256; -1: none (0)") \
    X("fork_token", fork_token, WORD, 0, 0, NULL, "the token by which a sequence forks ([Fork])") \
    X("child_token", child_token, WORD, 0, 0, NULL, "and the one that its child begins with ([Child])") \
    X("forks", forks, INTEGER, 0, 1 << 24, NULL, "forks of a sequence between two prompts, at most; 0: 16 (0)") \
    X("fork_depth", fork_depth, INTEGER, 0, 8, NULL, "forks of forks; 0: 2 deep (0)") \
    X("history", history, INTEGER, 0, 1 << 24, NULL, "tokens of closed sequences for n-grams; 0: none (0)") \
    X("prefill_chunk", prefill_chunk, INTEGER, 0, 1 << 30, NULL, \
      "prompt tokens that a step prefills while others decode; 0: a third of its time (0)") \
    X("checkpoint", checkpoint, INTEGER, 0, 1 << 30, NULL, \
      "tokens between checkpoints of a recurrent model, where a sequence can be cut; 0: a quarter of the context (0)") \
    X("weights_in_place", weights_in_place, SWITCH, 0, 1, NULL, "weights stay in the file: half the memory, slower") \
    X("vocabulary_only", vocabulary_only, SWITCH, 0, 1, NULL, "no weights, only what it takes to tokenise") \
    X("constraints", constraints, SWITCH, 0, 1, NULL, "sequences may have constraints") \
    X("logprobs", logprobs, INTEGER, 0, SPECDEC_MAX_LOGPROBS, NULL, \
      "log-probabilities of written tokens are kept, with the N best in their places; 0: none (0)") \
    X("kv", kv, NAME, 0, 0, "f16|f32|q8_0", "how keys and values are kept (f16)") \
    X("isa", isa, WORD, 0, 0, NULL, "instruction set, see specdec-info; the text is the same with all (the best)") \
    X("chat_format", chat_format, NAME, 0, 0, SPECDEC_CHAT_FORMATS, "how a conversation is put (as the model says)") \
    X("async", async, INTEGER, -1, SPECDEC_MAX_THREADS - 1, NULL, \
      "threads that go on drafting while the others verify; 0: one, where that is faster; -1: none (0)") \
    X("drafting", drafting, CHOICE, 0, SPECDEC_DRAFT_COUNT - 1, SPECDEC_DRAFTINGS, \
      "where draft tokens come from: whatever pays; nowhere; the draft model; heads; the model's own layers that\n" \
      "predict; a part of a long text, read by the model itself; repetition; what a constraint leaves no choice\n" \
      "about (auto)") \
    X("rule", rule, CHOICE, 0, SPECDEC_RULE_GREEDY - 1, "coupled|sequoia|specinfer|spectr|top-k", \
      "how draft tokens are accepted (coupled: the text of plain decoding)") \
    X("policy", policy, CHOICE, 0, SPECDEC_POLICY_COUNT - 1, "auto|static|dynamic", \
      "trees of a draft: from tables, or grown from its probabilities (auto)") \
    X("screening", screening, CHOICE, 0, SPECDEC_SCREENING_COUNT - 1, "auto|off|always", \
      "rows of a large output matrix that cannot win are read in part: where that is faster; never; of any (auto)") \
    X("retrieval", retrieval, INTEGER, 16, 1 << 24, NULL, \
      "tokens of a long text that triforce looks at; auto: only with this; 0: an eighth of the context (0)") \
    X("retrieval_chunk", retrieval_chunk, INTEGER, 0, 64, NULL, "that are chosen together; 0: 8 (0)") \
    X("draft_vocabulary", draft_vocabulary, INTEGER, -1, 1 << 24, NULL, \
      "tokens that drafters choose among, those that are frequent; 0: where that pays; -1: all (0)") \
    X("tree_size", tree_size, INTEGER, 2, 64, NULL, \
      "tokens of the speculated tree, the last known one included; 0: 8, auto: up to 32 (0)") \
    X("tree_depth", tree_depth, INTEGER, 2, SPECDEC_TREE_MAX_DEPTH, NULL, \
      "its levels; as many as tokens: a chain; 0: 5, auto: up to 12 (0)") \
    X("target", target.path, FILE, 0, 0, NULL, "the model: a GGUF file") \
    X("target.copy", target.copy, SWITCH, 0, 1, NULL, \
      "model files are read, not mapped: more memory, but they may change meanwhile") \
    X("target.model", target.model, POINTER, 0, 0, NULL, "a prepared model") \
    X("target.data", target.data, POINTER, 0, 0, NULL, "a model in memory") \
    X("target.size", target.size, POINTER, 0, 0, NULL, "its bytes") \
    X("draft", draft.path, FILE, 0, 0, NULL, \
      "a small draft model with the same vocabulary, or a drafter made for the model: an assistant, DFlash, DSpark") \
    X("draft.copy", draft.copy, SWITCH, 0, 1, NULL, "as of target") \
    X("draft.model", draft.model, POINTER, 0, 0, NULL, "as of target") \
    X("draft.data", draft.data, POINTER, 0, 0, NULL, "as of target") \
    X("draft.size", draft.size, POINTER, 0, 0, NULL, "as of target") \
    X("heads", heads.path, FILE, 0, 0, NULL, "heads trained for the model: an MLP speculator, Medusa, EAGLE-3") \
    X("heads.copy", heads.copy, SWITCH, 0, 1, NULL, "as of target") \
    X("heads.model", heads.model, POINTER, 0, 0, NULL, "as of target") \
    X("heads.data", heads.data, POINTER, 0, 0, NULL, "as of target") \
    X("heads.size", heads.size, POINTER, 0, 0, NULL, "as of target") \
    X("cluster", cluster, POINTER, 0, 0, NULL, "where the target's layers lie") \
    X("hooks", hooks, POINTER, 0, 0, NULL, "functions that are called")

typedef enum specdec_field_kind {
    SPECDEC_FIELD_INTEGER, /* an int, or int32_t */
    SPECDEC_FIELD_REAL,    /* a float: digits with a decimal point and an exponent, in every locale */
    SPECDEC_FIELD_SEED,    /* a uint64_t */
    SPECDEC_FIELD_SWITCH,  /* an int: "1", "on", "true" or "0", "off", "false" */
    SPECDEC_FIELD_CHOICE,  /* an enumeration: one of the words */
    SPECDEC_FIELD_NAME,    /* a string: one of the words */
    SPECDEC_FIELD_WORD,    /* a string */
    SPECDEC_FIELD_FILE,    /* a path */
    SPECDEC_FIELD_LIST,    /* strings of low to high bytes: one more each time */
    SPECDEC_FIELD_CHARACTERS, /* an array of char that holds the string */
    SPECDEC_FIELD_SEQUENCE, /* an array of bytes: words that ; separates, as their places from 1 on */
    SPECDEC_FIELD_POINTER  /* not from a text */
} specdec_field_kind;

/* A row of SPECDEC_SETTINGS_FIELDS or SPECDEC_CONFIG_FIELDS. */
typedef struct specdec_field {
    const char *name; /* such as "top_k" */
    specdec_field_kind kind; /* the type of the member */
    int settings;     /* not 0: a member of specdec_settings */
    size_t at, size;  /* offset of the member in a specdec_config, and its bytes */
    double low, high; /* the range of its values */
    const char *words, *help; /* words that are allowed, separated by |; a sentence of help */
} specdec_field;

/* Returns the i-th field, fields of specdec_settings first; NULL behind the last. */
SPECDEC_DEF const specdec_field *specdec_get_field(int i);

/* Sets a field by its name from a text; NULL: to its default, as in {0}. specdec_config_set takes names of settings,
   too, for config.settings. Errors: ARGUMENT, with a text for people; nothing is changed then. */
SPECDEC_DEF specdec_result specdec_config_set(specdec_config *config, const char *name, const char *text,
                                              specdec_error *error);
SPECDEC_DEF specdec_result specdec_settings_set(specdec_settings *settings, const char *name, const char *text,
                                                specdec_error *error);

/* ---- A sequence and its engine: made, used, given back. -------------------------------------------------------------

   A handle is a sequence. The first one comes with the engine: a program that needs no second one has one handle. Calls
   leave a message about a failure in the sequence (specdec_error_text); those before there is one write to *error,
   which may be NULL. A NULL where something is needed is SPECDEC_ERROR_ARGUMENT, and so is a closed sequence, an engine
   that has ended, or one in which another thread is. */

/* Computes the bytes that specdec_init will need: exactly so many are enough, one less is refused. Opens and checks the
   models, and refuses all that specdec_init would refuse without a look at the machine. Errors: FILE, FORMAT,
   UNSUPPORTED, ARGUMENT, MISMATCH (and which token; or the target is no model that can decode). */
SPECDEC_DEF specdec_result specdec_memory_needed(const specdec_config *config, size_t *bytes, specdec_error *error);

/* Makes an engine and its first sequence inside memory (any alignment), which they own until specdec_deinit; starts
   threads, repacks weights. Nothing is allocated, now or later. Errors: those of specdec_memory_needed, MEMORY, SYSTEM,
   CANCELLED (by the progress hook), PEER; *engine is then NULL, and the memory the caller's. */
SPECDEC_DEF specdec_result specdec_init(specdec **engine, const specdec_config *config, void *memory, size_t bytes,
                                        specdec_error *error);

/* Ends the engine of a sequence, and all its sequences: stops the threads, unmaps the files. NULL is allowed. */
SPECDEC_DEF void specdec_deinit(specdec *engine);

/* Serves rank 0 of a cluster on any other rank, until rank 0 ends its engine (DONE). specdec_get_stats then counts runs
   (steps), seconds at work, nodes (drafted) and nodes of runs that were not cancelled (accepted). Errors: PEER;
   CANCELLED by specdec_cancel: the cluster ends with that, as when any rank ends. */
SPECDEC_DEF specdec_result specdec_serve(specdec *engine);

/* Returns the message of the last call on this sequence that failed; "" if none has. */
SPECDEC_DEF const char *specdec_error_text(const specdec *engine);

/* Changes the settings of a sequence from the next token that is returned: tokens that were verified with other
   sampling are dropped. max_tokens counts from the last prompt. Bytes held back because they may begin a stop string
   are matched anew. An answer that a stop string has ended stays ended. Errors: ARGUMENT; nothing is changed then. */
SPECDEC_DEF specdec_result specdec_set(specdec *engine, const specdec_settings *settings);

/* Copies the settings of a sequence. Their stop strings are valid until other settings, or a load, replace them. */
SPECDEC_DEF void specdec_get_settings(const specdec *engine, specdec_settings *settings);

/* ---- More sequences on the same memory, weights and threads. -------------------------------------------------------

   A step decodes for every sequence that has something to do. The tokens of a sequence do not depend on the others.
   With config.sequences > 1 a prompt is prefilled by the steps that follow, some tokens a step, while other sequences
   decode. Tokens that another sequence begins with, or began with before it was closed, are not prefilled again. */

/* Opens an empty sequence in the engine of any sequence. Errors: MEMORY when config.sequences are open; *sequence is
   then NULL. */
SPECDEC_DEF specdec_result specdec_open(specdec *engine, specdec **sequence);

/* Opens a copy of a sequence: its tokens, its settings, how much was returned. The copy continues with the same
   tokens until its settings are changed. Cached keys and values are shared; a fork costs a page of 64 tokens. Errors:
   as specdec_open. */
SPECDEC_DEF specdec_result specdec_fork(specdec *sequence, specdec **fork);

/* Frees the slots and cache pages of a sequence, and of its children. The handle may still be used to open other
   sequences and to end the engine. */
SPECDEC_DEF void specdec_close(specdec *sequence);

/* Prefix cache: the keys and values of a sequence stay when it is closed, rewound or replaced by specdec_load, and
   prompts that begin with the same tokens are not prefilled again from there: up to config.prefixes prefixes, each of 4
   to 5 bytes a token of the context, in cache pages that no open sequence needs. An open sequence takes these pages
   whenever it needs room; prefixes that were shared stay longest, among equals those used last. There are prefixes
   where config.cache is more than one context, and not in a cluster. Where layers see a window, a prefix can be shared
   only up to the position whose last window of keys is still cached. */

/* Empties the prefix cache. No text depends on it, but times show whether other prompts began alike. */
SPECDEC_DEF void specdec_drop_prefixes(specdec *engine);

/* A sequence forks by itself where the model writes the fork token, or where hooks.fork says so: a child sequence,
   which begins with all tokens up to there and the child token, is opened and decodes on its own, with the same
   settings; neither sees what the other writes. The child token is never chosen, the fork token not behind a control
   token. Children keep decoding, whether anybody takes their text or not; their pages are freed when they end, their
   slots with the next prompt of the parent, or when the child is closed. Where no slot is free, the call on the parent
   fails with MEMORY, and may be repeated later. APAR: Liu et al. 2024, arXiv 2401.06761. */

/* Returns the i-th child of a sequence's last answer, in the order of forks; NULL: there is none. */
SPECDEC_DEF specdec *specdec_child(specdec *sequence, int i);

/* Writes the last answer as one text: up to a fork, then the child's text (with its children's), then the rest. *length
   becomes its bytes; bytes[room] may be too small (BUFFER), or NULL with room 0. */
SPECDEC_DEF specdec_result specdec_join_forks(specdec *sequence, char *bytes, size_t room, size_t *length);

/* Runs one step for all sequences of an engine that have work: that were prompted, have not ended, and hold fewer than
   8 tokens that were not taken. DONE: no sequence has work, or all that have wait for cache pages. An error of one
   sequence is not returned here: the next call on that sequence returns it, and the others continue. */
SPECDEC_DEF specdec_result specdec_work(specdec *engine);

/* Writes the history that n-grams draft from into data[room], as a file that specdec_load_history reads on any machine:
   the tokens of closed sequences (config.history) and of open ones, and tokens that the model found likely behind them.
   *bytes becomes its size; data NULL: only the size is computed. The file holds the tokens as they are. Errors: BUFFER;
   ARGUMENT: this engine has no n-grams. */
SPECDEC_DEF specdec_result specdec_save_history(specdec *engine, void *data, size_t room, size_t *bytes);

/* Adds the tokens of a file of specdec_save_history to the history, as if its sequences had just been closed; if they
   exceed config.history, the newest are kept. Changes draft tokens, never the text. Every byte is checked; a file that
   is refused changes nothing. Errors: FORMAT, UNSUPPORTED (its version), MISMATCH (another vocabulary), ARGUMENT (no
   n-grams, or config.history is 0). */
SPECDEC_DEF specdec_result specdec_load_history(specdec *engine, const void *data, size_t size);

/* Writes a sequence into data[room], as a file that specdec_load reads on any machine: the tokens that were returned,
   the target's keys and values, settings and seed. *bytes becomes its size; data NULL: only the size is computed. That
   is some hundred MB for a long document (data may be a mapped file). Not in it: children, log-probabilities,
   statistics, and biases, which lie in the caller's memory. Errors: BUFFER; ARGUMENT (a fork waits for a slot). */
SPECDEC_DEF specdec_result specdec_save(specdec *sequence, void *data, size_t room, size_t *bytes);

/* Replaces a sequence, and its settings except biases, by a file of specdec_save. With the same biases the sequence
   continues bit for bit as if it had never stopped; with rejection rules, in the same distribution. Drafters prefill it
   when they are asked; EAGLE-3 cannot, and waits for a sequence that is cut or begins anew. Every byte is checked; a
   file that is refused changes nothing. Errors: FORMAT, UNSUPPORTED (its version), MISMATCH (another model or
   config.kv, or only one of both contexts is long to the model), CONTEXT (it is too long), FULL, ARGUMENT (this
   sequence is a child). */
SPECDEC_DEF specdec_result specdec_load(specdec *sequence, const void *data, size_t size);

#define SPECDEC_WHOLE_STRING ((size_t)-1) /* a length: the string ends with a zero byte */

/* Appends text to a sequence and prefills it; the first text follows the token that begins texts, later text continues
   without a space. Control tokens are not recognised. A failed call changes nothing. At most 16 bytes for each token of
   the context. Errors: ARGUMENT (there is no token at all), CONTEXT, CANCELLED. */
SPECDEC_DEF specdec_result specdec_prompt(specdec *engine, const char *text, size_t length);

/* Appends text as specdec_prompt does, but control tokens that are spelled in it become these tokens, as in prompts
   with gaps to fill: not for text that comes from strangers. */
SPECDEC_DEF specdec_result specdec_prompt_special(specdec *engine, const char *text, size_t length);

/* Appends token ids as specdec_prompt appends text. */
SPECDEC_DEF specdec_result specdec_prompt_tokens(specdec *engine, const int32_t *tokens, int count);

typedef enum specdec_role { SPECDEC_SYSTEM, SPECDEC_USER, SPECDEC_ASSISTANT } specdec_role;

typedef struct specdec_message {
    specdec_role role; /* who speaks */
    const char *text;  /* the message, UTF-8 */
    size_t length;     /* or SPECDEC_WHOLE_STRING */
    int special;       /* not 0: control tokens that the text spells become control tokens; else they are text */
} specdec_message;

/* Appends messages in the model's chat format, and the tokens that make the model answer; all in all at most 16 bytes
   for each token of the context. A conversation that begins without a system message gets the default one of the
   model's template. A template of no known format is run. Errors: as specdec_prompt, also where the template refuses
   messages; UNSUPPORTED when there is no template, or it is not understood. */
SPECDEC_DEF specdec_result specdec_chat(specdec *engine, const specdec_message *messages, int count);

/* A piece of text: whole UTF-8 characters without a terminating zero, valid until the next call on its sequence. In a
   text from the caller, length may be SPECDEC_WHOLE_STRING (up to the zero), and bytes NULL (no text). */
typedef struct specdec_text {
    const char *bytes; /* UTF-8 */
    size_t length;     /* in bytes */
} specdec_text;

/* ---- Conversations with thoughts, tools and parts. ------------------------------------------------------------------

   These two calls take a whole conversation, each time, and put it in the place of what the sequence holds: the tokens
   that both begin with stay, so that of a conversation that has grown only what is new is prefilled, and of one whose
   template rewrites earlier turns (as thoughts are dropped) what follows the change. Then the answer follows, by
   specdec_next, or in parts by specdec_next_part. */

/* A call of a tool. */
typedef struct specdec_tool_call {
    specdec_text id, name;  /* the id may be missing */
    specdec_text arguments; /* a JSON object */
} specdec_tool_call;

/* A message of a conversation for specdec_chat_messages. */
typedef struct specdec_chat_message {
    const char *role;               /* "system", "developer", "user", "assistant", "tool": what the template knows */
    specdec_text content;           /* none: null */
    specdec_text thoughts;          /* of an assistant (reasoning_content) */
    const specdec_tool_call *calls; /* (call_count) of an assistant */
    int call_count;                 /* how many calls there are */
    specdec_text call_id, name;     /* of a tool's result: the call that it answers, and the tool's name */
} specdec_chat_message;

typedef enum specdec_tool_choice {
    SPECDEC_TOOLS_AUTO,     /* the model writes text or calls */
    SPECDEC_TOOLS_NONE,     /* text: the template is given no tools */
    SPECDEC_TOOLS_REQUIRED  /* the model calls a tool; `tool`, if that is named */
} specdec_tool_choice;

/* A conversation; {0} with messages is good. */
typedef struct specdec_chat_input {
    const specdec_chat_message *messages; /* (count) the conversation, oldest first */
    int count;              /* how many messages there are */
    specdec_text tools;     /* a JSON array of {"type": "function", "function": {"name", "description",
                               "parameters"}} */
    specdec_tool_choice tool_choice; /* whether the model may or must call tools */
    specdec_text tool;      /* the name of the tool that must be called */
    specdec_text arguments; /* a JSON object: variables of the template, such as {"enable_thinking": false} */
    int continues;          /* not 0: the last message, an assistant's, is continued instead of closed */
    int special;            /* not 0: control tokens that messages spell become control tokens; 0: they are plain
                               text */
} specdec_chat_input;

/* Replaces the tokens of a sequence by a conversation as the model's template writes it, with the tokens that make the
   model answer. Errors: as specdec_chat; FORMAT: something that should be JSON is not, or not of this form. A failed
   call changes nothing. */
SPECDEC_DEF specdec_result specdec_chat_messages(specdec *engine, const specdec_chat_input *input);

/* As specdec_chat_messages, from one JSON text, such as the body of a request to /v1/chat/completions. It reads the
   members messages (content may be a list of parts of type text), tools, tool_choice, chat_template_kwargs and
   continue_final_message. */
SPECDEC_DEF specdec_result specdec_chat_json(specdec *engine, const char *json, size_t length);

/* Kinds of parts of an answer. */
typedef enum specdec_part_kind {
    SPECDEC_PART_CONTENT,
    SPECDEC_PART_THOUGHT,
    SPECDEC_PART_NAME,      /* the name of the tool that is called: begins a call */
    SPECDEC_PART_ARGUMENTS, /* of a call, piece by piece: together a JSON object */
    SPECDEC_PART_END        /* the call is complete (no text) */
} specdec_part_kind;

typedef struct specdec_part {
    specdec_part_kind kind; /* what the part is */
    int call;          /* the number of the call in its answer, from 0; else -1 */
    specdec_text text; /* valid until the next call on that sequence or splitter; parts of calls may cut a character */
} specdec_part;

/* Returns the next part of the answer, without the model's marks: OK with a part, or DONE without one. Take an answer
   by this call or by specdec_next, not by both. Other errors are those of specdec_next. */
SPECDEC_DEF specdec_result specdec_next_part(specdec *engine, specdec_part *part);

/* Returns the next part as specdec_next_part does, but without a step, as specdec_take. PENDING: nothing is ready. */
SPECDEC_DEF specdec_result specdec_take_part(specdec *engine, specdec_part *part);

/* Splits an answer into parts without an engine. Its members are private. */
typedef struct specdec_splitter {
    const void *calls, *thoughts; /* how the model writes tool calls and thoughts: rows of tables */
    const char *input;            /* (length) bytes that were pushed and not split yet */
    size_t length;                /* bytes at input */
    uint32_t stack;               /* a bit for each open bracket of arguments, 1: a dict */
    int state, flags, phase, depth, call, calls_begun, ended, held, noted, out, taken, queued;
    int started, since;           /* not 0: a call has begun, and in which way; how many bytes ago */
    int kind_count;               /* arguments whose kinds are known */
    const uint32_t *kinds_known;  /* 3 words each: hash of tool and argument; 1: a string, 2: other JSON */
    uint64_t tool;                /* hash of the name of the tool that is called */
    int numbers[12], ends[12];    /* (queued) of the next parts: number of the call; end in bytes */
    unsigned char kinds[12];      /* (queued) of the next parts: specdec_part_kind */
    char hold[96], note[160], bytes[1200]; /* bytes that may become a mark; a name or value so far; of the parts */
} specdec_splitter;

/* Begins an answer. calls, thoughts: names of the marks that the model writes, as in specdec_model_info; NULL: none.
   inside: the prompt has begun a thought already. Errors: ARGUMENT (an unknown name). */
SPECDEC_DEF specdec_result specdec_splitter_begin(specdec_splitter *splitter, const char *calls, const char *thoughts,
                                                  int inside);

/* Gives a splitter the next bytes of an answer, control tokens spelled out; they must stay until all parts are taken.
   NULL: the answer has ended. */
SPECDEC_DEF void specdec_splitter_push(specdec_splitter *splitter, const char *bytes, size_t length);

/* Returns the next part of the bytes that were pushed, as 1; 0: more must be pushed first. */
SPECDEC_DEF int specdec_splitter_next(specdec_splitter *splitter, specdec_part *part);

/* Returns the next piece of the answer: OK with at least one byte, or DONE (with the last bytes, if any were held
   back): then a new prompt may follow. Errors, without bytes: CANCELLED, ARGUMENT (nothing was prompted), FULL (the
   cache: another sequence must be closed or cut), MEMORY (a fork finds no slot), PEER; FORMAT (values are not finite:
   the model is broken; the text says from which layer on), UNSUPPORTED (keys are too large for config.kv). */
SPECDEC_DEF specdec_result specdec_next(specdec *engine, specdec_text *piece);

/* Returns the next piece as specdec_next does, but of text that specdec_work has decoded. PENDING: there is none. */
SPECDEC_DEF specdec_result specdec_take(specdec *engine, specdec_text *piece);

/* Runs one step and returns all its tokens, without their text. *tokens stays valid until the next call on that
   sequence. Stop strings are matched in text, so only specdec_next ends at them. Take an answer by one of these calls,
   not by both. */
SPECDEC_DEF specdec_result specdec_step(specdec *engine, const int32_t **tokens, int *count);

/* Why an answer ended. */
typedef enum specdec_stop {
    SPECDEC_STOP_NONE,     /* the answer has not ended, or no call has returned DONE yet */
    SPECDEC_STOP_END,      /* a token that ends texts; it is the last of specdec_tokens */
    SPECDEC_STOP_STRING,   /* a stop string */
    SPECDEC_STOP_LIMIT,    /* max_tokens */
    SPECDEC_STOP_CONTEXT,  /* the context is full */
    SPECDEC_STOP_CANCELLED, /* the answer has not ended, but the last call was cancelled */
    SPECDEC_STOP_CONSTRAINT /* the constraint is complete, and nothing more can follow */
} specdec_stop;

/* Why the last answer ended. *which, if not NULL: the token that ended it, or the number of the stop string in the
   settings that it ended by; else -1. */
SPECDEC_DEF specdec_stop specdec_stopped(const specdec *engine, int *which);

/* Cuts an answer that a stop string has ended to the text that was returned, so that the model continues from what
   its user has seen: the tokens that hold the stop string are removed, and the part of the first of them that was
   returned is prefilled again, as text, with the next prompt. specdec_chat does so by itself. Other answers stay as
   they are, as do the results of specdec_stopped and specdec_join_forks. Errors: CONTEXT (no room for the tokens of
   that part), MEMORY; nothing is changed then. */
SPECDEC_DEF specdec_result specdec_cut_stop(specdec *engine);

/* Returns all tokens of a sequence, valid until the next call on it (tokens or count may be NULL): prompts and answers,
   without tokens that slid out of the context (settings.slide). These leave in the call that needs room; the tokens
   that stay are prefilled again, and the sequence continues like one that was prompted with them alone: positions, of
   noise too, count from the new beginning; max_tokens counts on. A prompt that does not fit is refused all the same.
   Sequences that have children, or are children, end as without; none slides twice in a call. */
SPECDEC_DEF void specdec_tokens(const specdec *engine, const int32_t **tokens, int *count);

/* Truncates a sequence to its first count tokens, whose keys and values stay. An answer begins there, from which
   max_tokens counts; an answer that had ended continues. Errors: ARGUMENT. */
SPECDEC_DEF specdec_result specdec_rewind(specdec *engine, int count);

/* Makes the running prompt, or the running or next step, return SPECDEC_ERROR_CANCELLED within a layer's time; a step
   that runs for several sequences is finished first. Callable from any thread and from signal handlers. The sequence
   stays as it was before the cancelled call, and may continue. A cancellation that has ended no call waits for the next
   step; the next prompt, unless it is refused, drops it, as it came too late for the answer it was meant for. So does
   closing the sequence; specdec_rewind does not. */
SPECDEC_DEF void specdec_cancel(specdec *engine);

/* A token and the number by which it is ranked: a logit, a logit with its noise, or a log-probability. */
typedef struct specdec_candidate {
    int32_t token; /* token id */
    float logit;   /* the number it is ranked by */
} specdec_candidate;

/* The log-probabilities at the position of a written token: natural logarithms of the model's own probabilities, before
   biases, penalties, filters and temperature. NaN where a broken model has computed none. */
typedef struct specdec_logprob {
    int32_t token;                 /* the written token */
    float logprob;                 /* its log-probability */
    const specdec_candidate *best; /* [count], most probable first, equals by token; valid until the next call */
    int count;                     /* as settings and config say, or fewer in a smaller vocabulary */
} specdec_logprob;

/* Returns the log-probability of specdec_tokens[at]. Errors: ARGUMENT when that token was not written but prompted,
   config.logprobs is 0, settings.top_logprobs was -1, or the token had slid out of the sequence in a call that failed,
   and came back. */
SPECDEC_DEF specdec_result specdec_get_logprob(specdec *engine, int at, specdec_logprob *logprob);

/* Computes logits after a sequence and after any nodes behind it, in one step: row 0 of logits[(count + 1) *
   vocabulary] is the one after the sequence (zeros while it is empty), row 1 + i the one after node i. parents[i] < i,
   or -1 for children of the sequence's last token. tokens and parents may be NULL when count is 0, behind a text;
   logits may be NULL: then the step is run for its time alone. The sequence does not change. At most as many nodes as
   the larger of batch and tree_size. Errors: ARGUMENT, FULL, CANCELLED; FORMAT and UNSUPPORTED as of specdec_next. */
SPECDEC_DEF specdec_result specdec_logits(specdec *engine, const int32_t *tokens, const int32_t *parents, int count,
                                          float *logits);

/* Scores labels as continuations of a sequence, all in one step: scores[count] become the log-probabilities of each
   label's tokens, as specdec_prompt would append it. The sequence does not change. Together labels have at most as many
   tokens as specdec_logits takes nodes. Errors: ARGUMENT (no text, no label, an empty label, too many tokens), FULL,
   CANCELLED; FORMAT and UNSUPPORTED as of specdec_next. */
SPECDEC_DEF specdec_result specdec_score(specdec *engine, const char *const *labels, int count, double *scores);

/* Appends tokens as specdec_prompt_tokens, and returns the logits after each: logits[count * vocabulary], if it
   succeeds. */
SPECDEC_DEF specdec_result specdec_prompt_logits(specdec *engine, const int32_t *tokens, int count, float *logits);

#define SPECDEC_STATE_FINAL (-1) /* instead of a layer */

/* Appends tokens as specdec_prompt_tokens, and returns the target's hidden states after each of them: states[count *
   layer_count * embedding]. layers[i]: the residual stream after so many layers, 0 to all; or SPECDEC_STATE_FINAL: the
   state that logits are computed from. States of a failed call are undefined. Errors: also ARGUMENT (no such layer). */
SPECDEC_DEF specdec_result specdec_prompt_states(specdec *engine, const int32_t *tokens, int count, const int *layers,
                                                 int layer_count, float *states);

#define SPECDEC_STATS_TREES 12 /* sizes of trees that are counted separately */

/* How many trees of one size were verified; a step of plain decoding has one node and one level. */
typedef struct specdec_tree_count {
    int32_t nodes, levels; /* root included */
    int64_t steps;         /* steps with such a tree */
} specdec_tree_count;

/* Statistics of a sequence since it was opened. Seconds are 0 without a clock. */
typedef struct specdec_stats {
    int64_t prompt_tokens, tokens, slid; /* tokens prompted, written, slid out of the context */
    int64_t shared_tokens, cached_tokens; /* prompt tokens not prefilled, as in open sequences; as in prefixes */
    int64_t prefilled_tokens;           /* tokens prefilled by the target: all others, and those prefilled again */
    int64_t steps;                      /* decoding steps; tokens / steps: tokens a step */
    int64_t drafted, accepted;          /* nodes of trees without roots; how many of them were accepted */
    int64_t offered_by_rank[8], accepted_by_rank[8]; /* children of a reached node, by rank 1..8 */
    double prompt_seconds, first_token_seconds; /* prefilling; from the last prompt call to its first token */
    double seconds, draft_seconds, verify_seconds; /* decoding in all, drafting, target's forward passes */
    int64_t steps_by_width[7];          /* forward steps of 1, 2, 3..4, 5..8, 9..16, 17..32, 33..64 nodes */
    int64_t steps_by_drafter[SPECDEC_DRAFT_COUNT]; /* by specdec_drafting: steps whose tree had nodes of that drafter */
    int64_t steps_beside;               /* steps during which the draft model kept drafting */
    double beside_seconds;              /* seconds that the engine waited for the draft model in these steps */
    specdec_tree_count trees[SPECDEC_STATS_TREES]; /* most frequent first */
    int64_t steps_other_trees;          /* steps with other trees; all trees[].steps and these sum up to steps */
} specdec_stats;

SPECDEC_DEF void specdec_get_stats(const specdec *engine, specdec_stats *stats);

/* Facts about an engine. */
typedef struct specdec_info {
    const char *isa, *kv, *chat_format;          /* chat_format is NULL when none was recognised */
    int threads, context, vocabulary, layers, embedding; /* of the engine; of its target */
    int sequences, open_sequences;               /* slots for sequences, and how many are open */
    int cache, cache_free;                       /* tokens that the target's cache has room for, in pages of 64; free */
    int cache_prefixes;                          /* free tokens that hold prefixes of closed sequences */
    int32_t fork_token, child_token;             /* tokens of forks: config.fork_token, config.child_token; -1: none */
    size_t memory_bytes, weight_bytes, kv_bytes; /* the block; matrices of a step; cache of target and draft */
    size_t state_bytes;                          /* of recurrent layers, for one sequence; the cache holds several */
    uint64_t state_traffic;                      /* bytes of states and their inputs that steps read and wrote */
    uint64_t screened_rows;                      /* rows of logits that were bounds first: see specdec_screening */
    uint64_t screened_read, screened_whole;      /* rows of the matrix read for them; rows of logits read whole */
    int64_t screened_bytes;                      /* bytes of weights that steps did not read by screening */
    uint64_t products_per_token;                 /* multiply-adds in matrices */
} specdec_info;

SPECDEC_DEF void specdec_get_info(const specdec *engine, specdec_info *info);

/* Returns the target's model, for the calls below; it lives as long as the engine. */
SPECDEC_DEF const specdec_model *specdec_get_model(const specdec *engine);

/* ---- A model without an engine: one for many engines, or only to tokenise. --------------------------------------- */

/* The same three steps for a model as for an engine: memory, init, deinit. Of the configuration only target, threads,
   weights_in_place, vocabulary_only, isa and hooks are used. */
SPECDEC_DEF specdec_result specdec_model_memory_needed(const specdec_config *config, size_t *bytes, specdec_error
                                                       *error);
SPECDEC_DEF specdec_result specdec_model_init(specdec_model **model, const specdec_config *config, void *memory, size_t
                                              bytes, specdec_error *error);
SPECDEC_DEF void specdec_model_deinit(specdec_model *model);

/* Options of specdec_tokenize; they are added up. */
enum {
    SPECDEC_TOKENIZE_BEGIN = 1,   /* put the token that begins texts first, if the model wants one (add_bos_token) */
    SPECDEC_TOKENIZE_END = 2,     /* put the token that ends texts last, if the model wants one (add_eos_token) */
    SPECDEC_TOKENIZE_SPECIAL = 4, /* recognise control tokens spelled in the text, as user-defined ones always are */
    SPECDEC_TOKENIZE_INSIDE = 8   /* the text continues other text: no space is put before it */
};

/* Returns the bytes of working memory for any text of `length` bytes: about 13 for each. */
SPECDEC_DEF size_t specdec_tokenize_memory(const specdec_model *model, size_t length);

/* Tokenises a text, with working memory of the caller's. *count becomes the number of tokens, also when capacity is too
   small (BUFFER). At most 4 tokens a byte and 5 more. Errors also: ARGUMENT, MEMORY. */
SPECDEC_DEF specdec_result specdec_tokenize(const specdec_model *model, const char *text, size_t length, int flags,
                                            int32_t *tokens, int capacity, int *count, void *memory, size_t bytes,
                                            specdec_error *error);

/* Messages, and the format in which a model reads them. */
typedef struct specdec_conversation {
    const char *chat_format;         /* NULL: as the model says */
    const specdec_message *messages; /* (count) oldest first */
    int count;                       /* how many messages there are */
} specdec_conversation;

/* Returns the bytes of working memory for specdec_chat_tokens; 0 when that call would fail. */
SPECDEC_DEF size_t specdec_chat_tokens_memory(const specdec_model *model, const specdec_conversation *conversation);

/* Tokenises a conversation as specdec_chat does in an empty sequence, with the token that begins texts and with working
   memory of the caller's. *count becomes the number of tokens, also when capacity is too small (BUFFER; 0 only counts).
   Errors also: ARGUMENT, MEMORY, MISMATCH (the vocabulary lacks a token of the format), UNSUPPORTED. */
SPECDEC_DEF specdec_result specdec_chat_tokens(const specdec_model *model, const specdec_conversation *conversation,
                                               int32_t *tokens, int capacity, int *count, void *memory, size_t bytes,
                                               specdec_error *error);

/* Kinds of a token, as bits: a token may be of several kinds. */
enum {
    SPECDEC_TOKEN_CONTROL = 1,      /* a control token, which is no text: <|im_start|> */
    SPECDEC_TOKEN_END = 2,          /* ends an answer */
    SPECDEC_TOKEN_BEGIN = 4,        /* begins texts */
    SPECDEC_TOKEN_USER_DEFINED = 8, /* is text that is always this token, wherever it is spelled */
    SPECDEC_TOKEN_BYTE = 16,        /* stands for a byte that is in no other token */
    SPECDEC_TOKEN_UNKNOWN = 32,     /* stands for text that has no token */
    SPECDEC_TOKEN_UNUSED = 64
};

/* Returns the kinds of a token; 0: it is a piece of text; -1: there is no such token. */
SPECDEC_DEF int specdec_token_kind(const specdec_model *model, int32_t token);

/* Returns the bytes of one token; *length becomes their number, also when size is too small (BUFFER). */
SPECDEC_DEF specdec_result specdec_token_text(const specdec_model *model, int32_t token, char *bytes, size_t size,
                                              size_t *length, specdec_error *error);

/* Returns the text of several tokens, as an engine hands it out at the beginning of a text; control tokens only with
   SPECDEC_TOKENIZE_SPECIAL. *length becomes its bytes; when size is too small (BUFFER), the bytes that are needed. */
SPECDEC_DEF specdec_result specdec_detokenize(const specdec_model *model, const int32_t *tokens, int count, int flags,
                                              char *bytes, size_t size, size_t *length, specdec_error *error);

#ifdef __cplusplus
}
#endif
