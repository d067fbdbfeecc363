/* specdec.h - lossless speculative decoding of GGUF language models on CPUs, in one header. C99, C++11; MIT licence
   at the end.

   DO THIS

     In ONE C or C++ file, before other headers:

         #define SPECDEC_IMPLEMENTATION
         #include "specdec.h"

     and build it with  cc -O2 -pthread  (no other flags, no libraries). Everywhere else just include it.

         specdec_config config = {0};                    // zero means "the good default", everywhere
         config.target.path = "model.gguf";
         config.draft.path = "small-model.gguf";         // optional: same vocabulary
         specdec_memory_needed(&config, &bytes, &error);
         specdec_init(&engine, &config, malloc(bytes), bytes, &error);
         specdec_prompt(engine, "Once upon a time", SPECDEC_WHOLE_STRING);
         while (specdec_next(engine, &piece) == SPECDEC_OK)
             fwrite(piece.bytes, 1, piece.length, stdout);
         specdec_deinit(engine);

   WHAT IT DOES

     Runs a model of the architectures llama, qwen2, qwen3, gemma2, gemma3, phi3, smollm3 and granite from a GGUF file
     or from memory. A cheap drafter guesses several tokens as a tree; one pass over the model's weights verifies all of
     them; what the model itself would have written is kept. The text is the one that plain decoding writes, byte for
     byte, greedy or sampled. One pass serves many texts (specdec_open, specdec_fork), also some that fork by
     themselves.

   WHAT IT DOES NOT

     No training, no GPU, no downloads, no templates evaluated, no mixture of experts, no images. Chat templates are
     recognised, not run.

   STEP BY STEP

     1. Fill a specdec_config. 2. specdec_memory_needed says how many bytes. 3. Get them anywhere: malloc, a static
     array, huge pages. 4. specdec_init. 5. specdec_prompt or specdec_chat. 6. specdec_next until it is not SPECDEC_OK;
     specdec_stopped says why. 7. Again from 5; specdec_rewind or specdec_set first, if wanted. 8. specdec_deinit; then
     the block is yours again. Lower doors: specdec_step (tokens), specdec_logits (logits), specdec_model_init (one
     model, many engines), and the plain functions on arrays (specdec_sample_..., specdec_tree_..., specdec_verify_...),
     which need no engine.

   MEMORY

     None is allocated, ever. The block holds everything: the engine, thread stacks, the KV cache (pages of 64 tokens),
     buffers for one step, and the weights once more, repacked (config.weights_in_place spares those). The GGUF stays
     mapped or yours. Windows takes no stacks from others: there, each further thread has one of 256 KB outside the
     block. Of the caller's own stack, calls need at most 12 KB (optimised; 5 to 9 were measured). Of gcc's -O2, no
     frame is above 2 KB. Whoever truncates a mapped file kills the process that reads it (SIGBUS): replace model files
     by renaming new ones over them. Where that cannot be ruled out, set config.target.copy, or catch the signal, as
     examples/specdec.c does.

   THREADS

     config.threads of them, the caller's included. An engine is used by one thread at a time; specdec_cancel may come
     from any, and from signal handlers. Engines are independent of each other. Models made by specdec_model_init are
     read-only.

   DETERMINISM

     The logits of a position are the same bits at every number of threads, step width, tree shape, drafter and
     instruction set. Every sum has one order (see >>kernel); exp, log, sin and cos are ours; noise is a function of
     (seed, position, token).

   ERRORS

     Every call that can fail returns a specdec_result; a text says which tensor, key or token (in a specdec_error, or,
     once there is an engine, by specdec_error_text). Nothing aborts. Files are checked byte by byte before they are
     believed. A failed call leaves the engine as it was.

   CONTENTS (search for the marker)

     >>base >>os >>pool >>quant >>op >>kernel >>gguf >>text >>model >>kv >>forward >>heads >>sample >>tree >>verify
     >>ngram >>draft >>tune >>stream >>engine >>public; >>lanes: float loops that >>kernel includes, once per
     instruction set */

#ifndef SPECDEC__ISA

/* Warnings that this file does not heed; all of them end with it. */
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-warning-option" /* each of them came with some version */
#pragma clang diagnostic ignored "-Wpadded"
#pragma clang diagnostic ignored "-Wreserved-macro-identifier"
#endif

/* strict -std=c99 hides POSIX; these must come before the first system header. */
#if defined(SPECDEC_IMPLEMENTATION) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#define _POSIX_C_SOURCE 200809L
#endif

#ifndef SPECDEC_H
#define SPECDEC_H

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
   SPECDEC_NO_ENCODERS  weights are only read: specdec_type_from_float writes no quantised types; 4 KB less
   SPECDEC_FREESTANDING  the first three and SPECDEC_NO_ENCODERS at once; what gcc -Os makes of C then has no tables for
                       unwinding in memory either
   SPECDEC_NO_SSE41, SPECDEC_NO_AVX2, SPECDEC_NO_AVXVNNI, SPECDEC_NO_AVX512, SPECDEC_NO_DOTPROD, SPECDEC_NO_I8MM
                       without that instruction set: a processor that has it uses the best of the others
   SPECDEC_TYPES(X)    the types of weights that are read besides F32, F16, BF16 and Q8_0, as a list:
                       #define SPECDEC_TYPES(X) X(Q4_K) X(Q6_K). A model with others is refused. If it is not
                       defined: all of them
   SPECDEC_NO_SPM      without the tokenizer of SentencePiece (tokenizer.ggml.model "llama"): a model of it is refused
   SPECDEC_NO_BPE      the same for byte-level BPE ("gpt2"); 7 KB less, of which 3 are a table of all characters
   SPECDEC_NO_VERIFIERS  only coupled and greedy verification, which write the text of plain decoding; 3 KB less
   SPECDEC_NO_CHAT     without chat formats: specdec_chat is refused; 3 KB less
   SPECDEC_NO_HEADS    without drafts that read the target's states: config.heads counts for nothing; 9 KB less
   SPECDEC_NO_ERROR_TEXTS  errors are codes (see specdec_result_text) without words of their own, and the log is
                       silent; 13 KB less
   SPECDEC_STATIC      all functions are static: for a program of one file, which then holds only what it calls
   SPECDEC_KERNELS_APART  without the kernels for AVX2 and AVX-512, which another file brings that defines
                       SPECDEC_KERNELS besides SPECDEC_IMPLEMENTATION: both compile side by side
   SPECDEC_WINDOWS_AVX on Windows gcc uses AVX, too. It is off there as it may crash, unless gcc was mended, as those of
                       Debian and MSYS2, or is given -Wa,-muse-unaligned-vector-move. clang needs no such word
   SPECDEC_FILE        under which name this file includes itself. Only compilers without __FILE_NAME__ (gcc before 12,
                       clang before 9) must be told, and only where it is not "specdec.h": #define SPECDEC_FILE "mine.h"
   SPECDEC_MAX_THREADS threads of an engine, at most. 64 */

#define SPECDEC_VERSION "0.4.0"
#define SPECDEC_VERSION_NUMBER 400 /* major * 10000 + minor * 100 + patch */

#ifndef SPECDEC_MAX_THREADS
#define SPECDEC_MAX_THREADS 64
#endif

#if defined(SPECDEC_STATIC) || defined(SPECDEC_KERNELS)
#define SPECDEC_DEF static __attribute__((unused))
#else
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
    X(ERROR_CONTEXT, "the text does not fit into the context") \
    X(ERROR_CANCELLED, "cancelled by specdec_cancel or the progress hook") \
    X(ERROR_SYSTEM, "the operating system refused a thread")

typedef enum specdec_result {
#define SPECDEC__RESULT(name, text) SPECDEC_##name,
    SPECDEC_RESULTS(SPECDEC__RESULT)
#undef SPECDEC__RESULT
    SPECDEC_RESULT_COUNT
} specdec_result;

#define SPECDEC_ERROR_TEXT_SIZE 240

/* What went wrong, in words: which tensor, which key, which token. Written only by calls that fail. */
typedef struct specdec_error {
    specdec_result code;
    char text[SPECDEC_ERROR_TEXT_SIZE];
} specdec_error;

/* The constant text of a result: "the memory block is too small". */
SPECDEC_DEF const char *specdec_result_text(specdec_result result);

/* "0.4.0": of the implementation that was linked. */
SPECDEC_DEF const char *specdec_version(void);

/* ---- Configuration: what an engine is made of. ------------------------------------------------------------------- */

typedef struct specdec specdec;             /* a text and its engine, in the caller's memory block */
typedef struct specdec_model specdec_model; /* a prepared model that several engines share */

/* Where a model comes from: the first of these that is set. */
typedef struct specdec_source {
    const specdec_model *model; /* prepared by specdec_model_init; must outlive the engine */
    const void *data;           /* a whole GGUF in memory (flash, an array), size bytes; must outlive the engine */
    size_t size;
    const char *path;           /* a GGUF file. It is mapped; a mapped file that shrinks kills the process (SIGBUS), */
    int copy;                   /* unless this is not 0: then it is read into the block, which grows by its size */
} specdec_source;

#define SPECDEC_FORK_TOKENS 16 /* that a child is made to begin with, at most */

/* Called from the thread that called the library. Any may be NULL. */
typedef struct specdec_hooks {
    void *user_data;
    /* done of total units of what: "repack" (matrices, in specdec_init), "prefill" (tokens, in specdec_prompt and the
       like, where these read at once). Anything but 0 ends that call with SPECDEC_ERROR_CANCELLED. */
    int (*progress)(void *user_data, const char *what, int done, int total);
    /* One line on what the engine is made of, or on what it does without. No newline; gone after the call. */
    void (*log)(void *user_data, const char *line);
    /* The last of tokens[count] was written: shall the text fork here? How many tokens the child begins with, written
       to child[SPECDEC_FORK_TOKENS]; 0: no fork. Must be a function of the tokens alone. */
    int (*fork)(void *user_data, const int32_t *tokens, int count, int32_t *child);
} specdec_hooks;

/* What is added to the logit of a token; -INFINITY forbids it. */
typedef struct specdec_bias {
    int32_t token;
    float bias;
} specdec_bias;

/* How tokens are chosen. {0} is greedy decoding. In llama.cpp's order: bias, penalty, top-k, top-p, min-p,
   temperature. */
typedef struct specdec_sampling {
    float temperature;         /* 0: greedy, everything below but penalty and biases is then ignored */
    int32_t top_k;             /* keep the k best; 0: off */
    float top_p;               /* keep the fewest best that hold this probability (of what top_k left); 0 or 1: off */
    float min_p;               /* keep those at least this probable, relative to the best; 0: off */
    float repetition_penalty;  /* positive logits of recent tokens are divided by it, others multiplied; 0 or 1: off */
    int32_t repetition_window; /* how many recent tokens that looks at; 0: 64, -1: all that are handed over */
    uint64_t seed;             /* the text is a function of prompt, target, seed; with rejection rules also of trees */
    const specdec_bias *biases; /* [bias_count]; a token named twice gets both, unknown ids are skipped */
    int bias_count;
} specdec_sampling;

#define SPECDEC_STOP_STRINGS 8 /* at once; each has 1 to 256 bytes */

/* How a text goes on. {0} is good: greedily, until the model ends it. What it points to must stay valid until other
   settings replace it. */
typedef struct specdec_settings {
    specdec_sampling sampling;
    int max_tokens;                         /* after each prompt; 0: as many as the context holds */
    const char *stop[SPECDEC_STOP_STRINGS]; /* end the answer, are not part of it; the first NULL ends the list */
    int show_special;                       /* not 0: control tokens such as <|im_end|> are handed out as text */
} specdec_settings;

/* The drafters: X(name, kind in >>draft, name on command lines).
   SPECDEC_DRAFT_MODEL: the draft model, always the same tree (dynamic: the same size and depth);
   SPECDEC_DRAFT_HEADS: heads that read the target's state: no cache, no prompt to be read, few levels; or a layer that
   reads several of its states (EAGLE-3), which has a small cache of its own;
   SPECDEC_DRAFT_NGRAM: what followed the same tokens before, in prompt and answer; no model, no training. */
#define SPECDEC_DRAFTERS(X) \
    X(MODEL, model, "draft") \
    X(HEADS, heads, "heads") \
    X(NGRAM, ngram, "ngram")

/* Where guesses come from. */
typedef enum specdec_drafting {
    SPECDEC_DRAFT_AUTO, /* all drafters, at every step in the tree that pays best by what was measured, or none */
    SPECDEC_DRAFT_OFF,  /* one token a step, even with a draft model */
#define SPECDEC__DRAFTER(NAME, kind, name) SPECDEC_DRAFT_##NAME,
    SPECDEC_DRAFTERS(SPECDEC__DRAFTER)
#undef SPECDEC__DRAFTER
    SPECDEC_DRAFT_COUNT
} specdec_drafting;

/* How guesses are accepted. All are lossless: coupled gives the very text of plain decoding with the same seed; the
   next four, for comparison, texts of the same distribution, from the draft model alone. At temperature 0 all are one
   and the same. Sequoia, SpecInfer and SpecTr ask for children drawn from the draft's distribution as said, and for a
   tree whose shape does not depend on the drawn tokens (on probabilities it may). */
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

/* How the draft model's trees come about. The text is the same with all where the rule promises that. */
typedef enum specdec_policy {
    SPECDEC_POLICY_STATIC,  /* from tables, by acceptance so far: Sequoia, Chen et al. 2024, arXiv 2402.12374 */
    SPECDEC_POLICY_DYNAMIC, /* grown level by level from the draft's own probabilities: EAGLE-2, Li et al. 2024, arXiv
                               2406.16858; OPT-Tree, Wang et al. 2024, arXiv 2406.17276. With coupled and top-k alone */
    SPECDEC_POLICY_COUNT
} specdec_policy;

#define SPECDEC_MAX_LOGPROBS 64
#define SPECDEC_MAX_TEXTS 1024

/* Everything about an engine. {0} with a target is a good configuration. Texts must stay valid while the engine
   lives. */
typedef struct specdec_config {
    specdec_source target;
    specdec_source draft;       /* optional; its vocabulary must be the target's */
    specdec_source heads;       /* optional: an MLP speculator, Medusa heads or EAGLE-3, trained for the target */
    specdec_settings settings;  /* of a text that is opened; specdec_set changes its own */
    int context;                /* tokens of a text, prompt included, at most 2^24; 0: the model's own, at most 4096 */
    int texts;                  /* that are open at once, 1..1024; 0: 1 */
    int cache;                  /* tokens that all texts hold together, shared ones counted once, at most 2^30; 0: as
                                   many as texts * context */
    const char *fork_token;     /* by name or id: a text that writes it forks; "": none; NULL: "[Fork]", if there are */
    const char *child_token;    /* this, which the child begins with (NULL: "[Child]"), and room for several texts */
    int forks;                  /* of a text between two prompts, at most; 0: 16 */
    int fork_depth;             /* forks of forks, at most 8 deep; 0: 2 */
    int history;                /* tokens of closed texts that n-grams still draft from, 230 bytes each; 0: none */
    int slice;                  /* prompt tokens that a step reads while other texts write; 0: as many as make that step
                                   half as long again */
    int threads;                /* 0: all processors, fewer for small models (one for each 4 MB of weights) */
    int batch;                  /* prompt tokens a step, 1..512; buffers grow with it; 0: 64 */
    int weights_in_place;       /* not 0: matrices are not repacked: slower, but needs no memory for them */
    int vocabulary_only;        /* not 0, for specdec_model_init: no weights, only what specdec_tokenize needs */
    int logprobs;               /* k > 0 (at most 64): log-probabilities of written tokens are kept, with the k best in
                                   their places: 8 (k + 1) bytes for each token of the context */
    const char *kv;             /* cache of keys and values: "f16" (also NULL), "f32", "q8_0" */
    const char *isa;            /* instruction set by name; NULL: the best this CPU has. All give the same bits */
    const char *chat_format;    /* "zephyr", "chatml", "llama2", "llama3", "mistral", "gemma", "phi3", "phi4",
                                   "phi4-mini", "granite"; NULL: as the model says */
    specdec_drafting drafting;
    specdec_rule rule;
    specdec_policy policy;
    int tree_size;              /* nodes of the token tree, root included, 2..64; 0: 8 (auto: up to 32) */
    int tree_depth;             /* its levels, root included; as many as nodes: a chain; 0: at most 5 (auto: 12) */
    specdec_hooks hooks;
} specdec_config;

/* ---- A text and its engine: made, used, given back. -----------------------------------------------------------------

   A handle is a text. The first one comes with the engine: a program that needs no second one knows but one handle.
   Calls leave the words for what failed in the text (specdec_error_text); those before there is one write to *error,
   which may be NULL. A NULL where something is needed is SPECDEC_ERROR_ARGUMENT, and so is a text that is closed. */

/* Bytes that specdec_init will need: exactly these are enough, one less is refused. Opens and checks the models.
   Errors: FILE, FORMAT, UNSUPPORTED, ARGUMENT. */
SPECDEC_DEF specdec_result specdec_memory_needed(const specdec_config *config, size_t *bytes, specdec_error *error);

/* Makes an engine and its first text inside memory (any alignment), which stays theirs until specdec_deinit; starts the
   threads, repacks the weights. Nothing is allocated, then or later. Errors: those above, MEMORY, MISMATCH (and which
   token), SYSTEM, CANCELLED (by the progress hook). */
SPECDEC_DEF specdec_result specdec_init(specdec **engine, const specdec_config *config, void *memory, size_t bytes,
                                        specdec_error *error);

/* Ends the engine of a text, and all its texts: stops the threads, unmaps the files. NULL is allowed. */
SPECDEC_DEF void specdec_deinit(specdec *engine);

/* In words, what failed in the last call on this text that did; "" if none has. */
SPECDEC_DEF const char *specdec_error_text(const specdec *engine);

/* Changes how the text goes on, from the next token that is handed out: tokens that were verified with another sampling
   are forgotten. max_tokens counts from the last prompt. Bytes that may begin a stop string and were held back for that
   are looked at anew. An answer that a stop string has ended stays ended. Errors: ARGUMENT; nothing is changed then. */
SPECDEC_DEF specdec_result specdec_set(specdec *engine, const specdec_settings *settings);

/* What is set. */
SPECDEC_DEF void specdec_get_settings(const specdec *engine, specdec_settings *settings);

/* ---- More texts on the same memory, weights and threads. ------------------------------------------------------------

   A step runs all texts that have something to do. What a text writes does not depend on the others. With config.texts
   > 1 a prompt is read by the steps that follow, some tokens each, while other texts write; what another open text
   begins with, too, is not read again. */

/* Opens an empty text with the settings of the config, in any text's engine. Errors: MEMORY, when config.texts are
   open. */
SPECDEC_DEF specdec_result specdec_open(specdec *engine, specdec **text);

/* Opens a copy of a text: its tokens, its settings, how far it was handed out. It goes on alike until its settings are
   changed. What was computed is shared; a fork costs a page of 64 tokens. Errors: as specdec_open. */
SPECDEC_DEF specdec_result specdec_fork(specdec *text, specdec **fork);

/* Gives the places and pages of a text, and of its children, back. The handle may still be used to open others and to
   end the engine. */
SPECDEC_DEF void specdec_close(specdec *text);

/* Texts fork by themselves where the model writes the fork token, or where hooks.fork says so: a child, which begins
   with all tokens up to there and the child token, is opened and goes on for itself, with the same settings; neither
   sees what the other writes. The child token is never chosen, the fork token not behind a control token. Children keep
   running, whether anybody takes their text or not; their pages come back when they end, their places with the next
   prompt of the parent, or when it is closed. Where no place is free, the call on the parent fails with MEMORY, and may
   be repeated later. APAR: Liu et al. 2024, arXiv 2401.06761. */

/* The i-th child of a text's last answer, in the order of the forks; NULL: there is none. */
SPECDEC_DEF specdec *specdec_child(specdec *text, int i);

/* The last answer as one text: what was written up to a fork, the child's (with its children's), the rest. *length
   becomes its bytes; bytes[room] may be too small (BUFFER), or NULL with room 0. */
SPECDEC_DEF specdec_result specdec_restore(specdec *text, char *bytes, size_t room, size_t *length);

/* One step for all texts of an engine that have something to do: that were prompted, have not ended, and of which less
   than 8 tokens wait to be taken. DONE: none has. What goes wrong with one text is no error here: that text's next call
   tells, and the others go on. */
SPECDEC_DEF specdec_result specdec_work(specdec *engine);

/* Writes what n-grams draft from, closed texts that are remembered (config.history) and the open ones, into data[room],
   as a file that specdec_load_seen reads on any machine. *bytes becomes what that takes; with NULL as data that is all.
   It holds the texts' tokens as they are. Errors: BUFFER; ARGUMENT: this engine has no n-grams. */
SPECDEC_DEF specdec_result specdec_save_seen(specdec *engine, void *data, size_t room, size_t *bytes);

/* Adds what such a file holds to what is remembered, as if its texts had just been closed; of what exceeds
   config.history the newest is kept. Changes what is guessed, never what is written. Every byte is checked; a file that
   is refused changes nothing. Errors: FORMAT, UNSUPPORTED (its version), MISMATCH (another vocabulary), ARGUMENT (no
   n-grams, or config.history is 0). */
SPECDEC_DEF specdec_result specdec_load_seen(specdec *engine, const void *data, size_t size);

#define SPECDEC_WHOLE_STRING ((size_t)-1) /* a length: the string ends with a zero byte */

/* Appends text to what the model sees, the first time behind the token that begins texts, and runs the model over it.
   Control tokens are not recognised in it. A failed call changes nothing. At most 16 bytes for each token of the
   context. Errors: ARGUMENT (empty at the very beginning, unless a token begins texts), CONTEXT (too long),
   CANCELLED. */
SPECDEC_DEF specdec_result specdec_prompt(specdec *engine, const char *text, size_t length);

/* The same with token ids. */
SPECDEC_DEF specdec_result specdec_prompt_tokens(specdec *engine, const int32_t *tokens, int count);

typedef enum specdec_role { SPECDEC_SYSTEM, SPECDEC_USER, SPECDEC_ASSISTANT } specdec_role;

typedef struct specdec_message {
    specdec_role role;
    const char *text;
    size_t length; /* or SPECDEC_WHOLE_STRING */
} specdec_message;

/* Appends messages in the model's chat format, and what makes the model answer; all in all at most 16 bytes for each
   token of the context. Control tokens are recognised, also inside the messages: clean what comes from strangers.
   Errors: as specdec_prompt; UNSUPPORTED when the format is not known. */
SPECDEC_DEF specdec_result specdec_chat(specdec *engine, const specdec_message *messages, int count);

/* A piece of text: valid until the next call; whole UTF-8 characters, not terminated. */
typedef struct specdec_text {
    const char *bytes;
    size_t length;
} specdec_text;

/* The next piece of the answer. OK with at least one byte, or DONE (with the last bytes, if any were held back): then a
   new prompt may follow. A step verifies several tokens; they are handed out one by one. Errors: CANCELLED, ARGUMENT
   (nothing was prompted). */
SPECDEC_DEF specdec_result specdec_next(specdec *engine, specdec_text *piece);

/* The same without a step: what specdec_work has made ready. PENDING: nothing is. */
SPECDEC_DEF specdec_result specdec_take(specdec *engine, specdec_text *piece);

/* The same one door lower: one step, all its tokens. *tokens stays valid until the next call. Stop strings are matched
   in text, so only specdec_next ends at them. */
SPECDEC_DEF specdec_result specdec_step(specdec *engine, const int32_t **tokens, int *count);

/* Why an answer ended. */
typedef enum specdec_stop {
    SPECDEC_STOP_NONE,     /* it has not, or nobody was told yet: DONE says that it has */
    SPECDEC_STOP_END,      /* by a token that ends texts; it is the last of specdec_tokens */
    SPECDEC_STOP_STRING,   /* by a stop string */
    SPECDEC_STOP_LIMIT,    /* max_tokens */
    SPECDEC_STOP_CONTEXT,  /* the context is full */
    SPECDEC_STOP_CANCELLED /* it has not ended, but the last call was cancelled */
} specdec_stop;

/* Why the last answer ended. *which, if not NULL: the token that ended it, or the number of the stop string in the
   settings that it ended by; else -1. */
SPECDEC_DEF specdec_stop specdec_stopped(const specdec *engine, int *which);

/* All tokens so far: prompts and answers. */
SPECDEC_DEF void specdec_tokens(const specdec *engine, const int32_t **tokens, int *count);

/* Forgets all but the first count tokens; what was computed for them stays. Errors: ARGUMENT. */
SPECDEC_DEF specdec_result specdec_rewind(specdec *engine, int count);

/* Makes the running (or next) prompt or step return SPECDEC_ERROR_CANCELLED within a layer's time; a step that runs for
   several texts is finished first. Callable from any thread and from signal handlers. The text stays as it was before
   that call; going on is allowed. */
SPECDEC_DEF void specdec_cancel(specdec *engine);

/* A token and a number that it is ranked by: a logit, a logit with its noise, a log-probability. */
typedef struct specdec_candidate {
    int32_t token;
    float logit;
} specdec_candidate;

/* What the model thought where a token was written: natural logarithms of probabilities, of the model itself, before
   biases, penalties, filters and temperature. */
typedef struct specdec_logprob {
    int32_t token;
    float logprob;
    const specdec_candidate *best; /* [count], most probable first, equals by token; valid until the next call */
    int count;                     /* config.logprobs, or fewer when the vocabulary is smaller */
} specdec_logprob;

/* That of specdec_tokens[at]. Errors: ARGUMENT when that token was not written but prompted, or config.logprobs is
   0. */
SPECDEC_DEF specdec_result specdec_get_logprob(specdec *engine, int at, specdec_logprob *logprob);

/* Logits after the text and after any nodes behind it, in one step: row 0 of logits[(count + 1) * vocabulary] is the
   one after the text so far (zeros while there is none), row 1 + i the one after node i. parents[i] < i, or -1 for
   children of the text's last token. tokens and parents may be NULL when count is 0; logits may be NULL: then the step
   is made, for its time. Nothing of the engine's text changes. At most as many nodes as the larger of batch and
   tree_size. Errors: ARGUMENT, CONTEXT, CANCELLED. */
SPECDEC_DEF specdec_result specdec_logits(specdec *engine, const int32_t *tokens, const int32_t *parents, int count,
                                          float *logits);

/* As specdec_prompt_tokens, with a row after each of these tokens: logits[count * vocabulary]. When it fails, what it
   has written there is of no use. */
SPECDEC_DEF specdec_result specdec_prompt_logits(specdec *engine, const int32_t *tokens, int count, float *logits);

#define SPECDEC_STATE_FINAL (-1) /* instead of a layer */

/* As specdec_prompt_tokens, with the target's states after each of these tokens: states[count * layer_count *
   embedding]. layers[i]: the residual stream after so many layers, 0 to all; or SPECDEC_STATE_FINAL: what logits are
   computed from. What a failed call has written there is of no use. Errors: also ARGUMENT (no such layer). */
SPECDEC_DEF specdec_result specdec_prompt_states(specdec *engine, const int32_t *tokens, int count, const int *layers,
                                                 int layer_count, float *states);

#define SPECDEC_STATS_TREES 12 /* shapes that are told apart */

/* Trees of one size that were verified; a step of plain decoding has one node and one level. */
typedef struct specdec_tree_count {
    int32_t nodes, levels; /* root included */
    int64_t steps;
} specdec_tree_count;

/* What the engine has done since it was made. Seconds are 0 without a clock. */
typedef struct specdec_stats {
    int64_t prompt_tokens, tokens;      /* read, written */
    int64_t steps;                      /* of writing; tokens / steps: tokens a step */
    int64_t drafted, accepted;          /* nodes of the trees but their roots */
    int64_t offered_by_rank[8], accepted_by_rank[8]; /* children of a reached node, by rank 1..8 */
    double prompt_seconds, first_token_seconds;      /* reading; from the last prompt call to its first token */
    double seconds, draft_seconds, verify_seconds;   /* writing in all, drafting, target forward */
    int64_t steps_by_width[7];          /* forward steps of 1, 2, 3..4, 5..8, 9..16, 17..32, 33..64 nodes */
    int64_t steps_by_drafter[SPECDEC_DRAFT_COUNT]; /* by specdec_drafting: steps whose tree had nodes of that drafter */
    specdec_tree_count trees[SPECDEC_STATS_TREES]; /* most frequent first */
    int64_t steps_other_trees;          /* with these, trees[].steps sum up to steps */
} specdec_stats;

SPECDEC_DEF void specdec_get_stats(const specdec *engine, specdec_stats *stats);

/* What an engine is made of. */
typedef struct specdec_info {
    const char *isa, *kv, *chat_format; /* chat_format is NULL when none was recognised */
    int threads, context, vocabulary, layers, embedding;
    int texts, open_texts;                       /* places for texts, and how many are taken */
    int cache, cache_free;                       /* tokens that the target's cache has room for, in pages of 64 */
    int32_t fork_token, child_token;             /* by which texts fork; -1: none */
    size_t memory_bytes, weight_bytes, kv_bytes; /* the block; matrices of a step; cache of target and draft */
    uint64_t products_per_token;                 /* multiply-adds in matrices */
} specdec_info;

SPECDEC_DEF void specdec_get_info(const specdec *engine, specdec_info *info);

/* The target's model, for the calls below; as long-lived as the engine. */
SPECDEC_DEF const specdec_model *specdec_get_model(const specdec *engine);

/* ---- A model without an engine: one for many engines, or only to tokenise. --------------------------------------- */

/* The same three steps. Only target, threads, weights_in_place, vocabulary_only, isa and hooks of the config count. */
SPECDEC_DEF specdec_result specdec_model_memory_needed(const specdec_config *config, size_t *bytes, specdec_error
                                                       *error);
SPECDEC_DEF specdec_result specdec_model_init(specdec_model **model, const specdec_config *config, void *memory, size_t
                                              bytes, specdec_error *error);
SPECDEC_DEF void specdec_model_deinit(specdec_model *model);

/* What specdec_tokenize shall do besides; they add up. */
enum {
    SPECDEC_TOKENIZE_BEGIN = 1,  /* put the token that begins texts first, if the model wants one (add_bos_token) */
    SPECDEC_TOKENIZE_END = 2,    /* put the token that ends texts last, if the model wants one (add_eos_token) */
    SPECDEC_TOKENIZE_SPECIAL = 4 /* recognise control tokens written in the text, as it does user-defined ones */
};

/* Bytes of working memory for any text of so many bytes: about 13 for each. */
SPECDEC_DEF size_t specdec_tokenize_memory(const specdec_model *model, size_t length);

/* Text to token ids, with working memory of the caller's. *count is how many there are, also when capacity is too small
   (BUFFER). At most 4 a byte and 5 more. Errors also: ARGUMENT, MEMORY. */
SPECDEC_DEF specdec_result specdec_tokenize(const specdec_model *model, const char *text, size_t length, int flags,
                                            int32_t *tokens, int capacity, int *count, void *memory, size_t bytes,
                                            specdec_error *error);

/* The bytes of one token; *length is how many, also when size is too small (BUFFER). */
SPECDEC_DEF specdec_result specdec_token_text(const specdec_model *model, int32_t token, char *bytes, size_t size,
                                              size_t *length, specdec_error *error);

/* The text of several, as an engine hands it out at the beginning of a text; control tokens with
   SPECDEC_TOKENIZE_SPECIAL. *length is how many bytes; when size is too small (BUFFER), how many there must be room
   for. */
SPECDEC_DEF specdec_result specdec_detokenize(const specdec_model *model, const int32_t *tokens, int count, int flags,
                                              char *bytes, size_t size, size_t *length, specdec_error *error);

/* ---- Sampling on arrays: from a row of logits to tokens. --------------------------------------------------------- */

/* What may be sampled at one position. */
typedef struct specdec_candidates {
    specdec_candidate *items; /* [vocab], the caller's memory; the first count are filled, in no promised order */
    int count;
    int greedy;               /* not zero: no noise, the best logit wins */
} specdec_candidates;

/* Turns logits[vocab] into candidates: biased, penalised, filtered, shifted so that the best is 0, divided by the
   temperature. recent[recent_count] is the text so far, newest last (ids outside the vocabulary are skipped).
   out->items must have room for vocab items. NaN counts as -infinity; a row of nothing else gives token 0. At
   temperature 0 every token stays. O(vocab), no memory. Errors: SPECDEC_ERROR_ARGUMENT. */
SPECDEC_DEF specdec_result specdec_sample_filter(specdec_candidates *out, const specdec_sampling *sampling, const float
                                                 *logits, int vocab, const int32_t *recent, int recent_count,
                                                 specdec_error *error);

/* The k best candidates by logit + Gumbel(seed, position, token), best first, into best[k] (its logit then holds that
   sum); the first is a sample from the candidates' distribution, the first k are k samples without replacement, in draw
   order. Target and draft that use the same seed and position choose alike (Daliri et al. 2024, arXiv 2408.07978).
   Greedy candidates get no noise. Equal sums: the lower token. Returns how many there are: fewer than k when candidates
   run out. */
SPECDEC_DEF int specdec_sample_top(const specdec_candidates *candidates, uint64_t seed, uint64_t position, int k,
                       specdec_candidate *best);

/* The candidates' distribution, p[vocab], summing to 1; zero for tokens that are no candidates. Greedy: all on the
   best. Errors: SPECDEC_ERROR_ARGUMENT. */
SPECDEC_DEF specdec_result specdec_sample_distribution(const specdec_candidates *candidates, int vocab, float *p,
                                           specdec_error *error);

/* A source of uniform numbers that is a function of (seed, position, decision): start every position of the text with
   decision 0. Independent of the noise in specdec_sample_top for the same seed. */
typedef struct specdec_uniform {
    uint64_t seed, position;
    uint32_t decision; /* counts up by itself; below 2^31 */
} specdec_uniform;

/* The next number, strictly between 0 and 1. */
SPECDEC_DEF double specdec_uniform_next(specdec_uniform *source);

/* ---- Token trees: what is speculated. ---------------------------------------------------------------------------- */

#define SPECDEC_TREE_MAX_NODES 1024 /* width n of a step, root included */
#define SPECDEC_TREE_MAX_DEPTH 32   /* levels d, root included, of a tree that specdec_tree_best builds */
#define SPECDEC_TREE_MAX_WIDTH 32   /* entries of an acceptance vector, so children a node of such a tree */

/* A token tree in the caller's arrays. Node 0 is the root: the last committed token. Parents come before their
   children, siblings in order of rank: the order in which their tokens were drawn. */
typedef struct specdec_tree {
    int32_t *parents; /* [capacity]; -1 for the root */
    int32_t *ranks;   /* [capacity]; 0 for the root, then 1, 2, ... among the children of a node */
    int capacity;
    int n;            /* nodes, root included */
} specdec_tree;

/* An acceptance vector p[width]: p[k-1] is the probability that the k-th child of an accepted node is accepted and the
   children before it are not. Not negative, sums to at most 1, often not monotone.

   Functions that build a tree fail with SPECDEC_ERROR_BUFFER when its arrays are too short; tree->n is then the needed
   count. Everything else they dislike is SPECDEC_ERROR_ARGUMENT. */

/* Does the tree keep all that is said above? Errors: SPECDEC_ERROR_ARGUMENT, and which node breaks which rule. */
SPECDEC_DEF specdec_result specdec_tree_check(const specdec_tree *tree, specdec_error *error);

/* Levels of a valid tree, root included. depths may be NULL; depths[n] are distances from the root, whose own is 0. */
SPECDEC_DEF int specdec_tree_depth(const specdec_tree *tree, int32_t *depths);

/* chains chains of length nodes each below the root, level by level; (1, n - 1) is plain speculation, (0, 0) only the
   root. */
SPECDEC_DEF specdec_result specdec_tree_chains(specdec_tree *tree, int chains, int length, specdec_error *error);

/* The tree of d levels in which every inner node has k children. */
SPECDEC_DEF specdec_result specdec_tree_full(specdec_tree *tree, int k, int d, specdec_error *error);

/* Expected tokens a step, the bonus token included: F(T) = the sum over nodes of the product of p[rank-1] on the path
   from the root. Ranks past width count as never accepted. */
SPECDEC_DEF specdec_result specdec_tree_score(double *score, const specdec_tree *tree, const double *p, int width,
                                  specdec_error *error);

/* Bytes of memory that specdec_tree_best and specdec_tree_grid need; 0 when a number is out of its limits. */
SPECDEC_DEF size_t specdec_tree_memory(int n, int d, int width);

/* The tree with exactly n nodes and at most d levels that scores highest, level by level, and its score G(n,d) (may be
   NULL): the exact dynamic programme of Sequoia (Chen et al. 2024, arXiv 2402.12374), O(n^2 d width) time. Errors also:
   SPECDEC_ERROR_MEMORY; SPECDEC_ERROR_ARGUMENT when n nodes do not fit into d levels. */
SPECDEC_DEF specdec_result specdec_tree_best(specdec_tree *tree, double *score, const double *p, int width, int n, int
                                             d, void *memory, size_t bytes, specdec_error *error);

/* Every score at once: grid[m * (d + 1) + l] becomes G(m,l) for m <= n, l <= d, and 0 where there is no such tree. */
SPECDEC_DEF specdec_result specdec_tree_grid(double *grid, const double *p, int width, int n, int d, void *memory,
                                             size_t bytes, specdec_error *error);

/* The (n,d) with the highest rate G(n,d) / (t(n) + d * draft_time) over a grid, for t(widths[i]) = times[i]; any one
   unit of time. The first of equals wins: earlier in widths, then fewer levels. best_rate, in tokens a unit of time,
   may be NULL. */
SPECDEC_DEF specdec_result specdec_tree_choose(int *best_n, int *best_d, double *best_rate, const double *grid, int n,
                                               int d, const int32_t *widths, const double *times, int count, double
                                               draft_time, specdec_error *error);

/* The tree of the default family (at most 64 nodes; made by tools/specdec-tune) with the highest rate, which is
   F(T) / (t(n) + d * draft_time), for a live acceptance vector, times[m] being t(m) for m = 1..n (times[0] unread); the
   root alone, at the rate 1 / t(1), when nothing pays. Trees above n nodes or tree->capacity are left out. best_rate
   may be NULL. Takes microseconds. */
SPECDEC_DEF specdec_result specdec_tree_pick(specdec_tree *tree, double *best_rate, const double *p, int width, const
                                             double *times, int n, double draft_time, specdec_error *error);

/* Keeps the min(n, count) most probable of count candidate nodes (a tree in topological order, the root first).
   probability is that of the path from the root, so never above the parent's; equals: the earlier. kept[n] becomes the
   kept candidates, in order, the tree their shape. EAGLE-2 (Li et al. 2024, arXiv 2406.16858), OPT-Tree (Wang et al.
   2024, arXiv 2406.17276). For the rejection rules a sibling's probability must not be above that of the sibling drawn
   before it. */
SPECDEC_DEF specdec_result specdec_tree_grow(specdec_tree *tree, int32_t *kept, const int32_t *parents, const float
                                             *probability, int count, int n, specdec_error *error);

/* ---- Verifiers: which child of a node is accepted. --------------------------------------------------------------- */

/* One decision: the distributions after a node and the node's children. Only the random source changes. */
typedef struct specdec_choice {
    const float *target;     /* [vocab], not negative; need not sum to 1 */
    const float *draft;      /* [vocab], the same; may be NULL for the last two rules, or without children */
    const int32_t *children; /* [child_count] tokens, in draw order */
    int vocab;
    int child_count;
    specdec_uniform *random; /* at decision 0 of the position being decided; NULL is enough for the greedy rule */
} specdec_choice;

/* What became of it. */
typedef struct specdec_verdict {
    int child;     /* index of the accepted child; -1: none, token is then the bonus token */
    int32_t token; /* the token at this position, either way */
} specdec_verdict;

/* Decides by any rule but coupled, which needs no distributions: see specdec_verify_match. Children that the draft
   could not have drawn, or drawn twice without replacement, are passed over. A few passes over the vocabulary and one
   more for each rejected child (SpecTr: about 30); no memory. Errors: SPECDEC_ERROR_ARGUMENT. */
SPECDEC_DEF specdec_result specdec_verify(specdec_rule rule, const specdec_choice *choice, specdec_verdict *verdict,
                              specdec_error *error);

/* Decides when the target's own token is known, from specdec_sample_top: the rule of coupled sampling and of greedy
   decoding. */
SPECDEC_DEF void specdec_verify_match(specdec_verdict *verdict, const int32_t *children, int child_count, int32_t
                                      token);

/* Decides for one node of a tree, whose children hold children[child_count] in order of rank (a leaf has none). Must
   set the verdict; anything but SPECDEC_OK ends the walk. */
typedef specdec_result (*specdec_verify_node)(void *user_data, int node, const int32_t *children, int child_count,
                                              specdec_verdict *verdict);

/* Walks a tree from its root by asking verify at every node it reaches. tokens[tree->n]; a negative one marks a node
   that the drafter left empty. accepted[tree->n] and path[tree->n] are the caller's: accepted[0 .. *accepted_count - 1]
   becomes the text of this step, its last token being the bonus token, and path[0 .. *accepted_count - 2] the nodes
   that hold the others; entries behind are scratch. Errors: SPECDEC_ERROR_ARGUMENT, and what verify returns. */
SPECDEC_DEF specdec_result specdec_verify_walk(int32_t *path, int32_t *accepted, int *accepted_count, const specdec_tree
                                               *tree, const int32_t *tokens, specdec_verify_node verify, void
                                               *user_data, specdec_error *error);

/* The tree that the draft model fills from now on, at every step: one that was measured (specdec-tune), of at most
   config.tree_size nodes and config.tree_depth levels; one node: plain decoding. The tree is copied. Only with
   SPECDEC_DRAFT_MODEL and static policy. Errors: ARGUMENT. */
SPECDEC_DEF specdec_result specdec_set_tree(specdec *engine, const specdec_tree *tree);

/* ---- Files and types: what GGUF files hold, and number formats, without an engine. ------------------------------- */

/* Bytes inside somebody else's memory. A string of a file is not terminated and need not be UTF-8. */
typedef struct specdec_bytes {
    const unsigned char *data;
    size_t size;
} specdec_bytes;

/* Types of metadata values, by their numbers in files. */
typedef enum specdec_gguf_type {
    SPECDEC_GGUF_U8, SPECDEC_GGUF_I8, SPECDEC_GGUF_U16, SPECDEC_GGUF_I16, SPECDEC_GGUF_U32, SPECDEC_GGUF_I32,
    SPECDEC_GGUF_F32, SPECDEC_GGUF_BOOL, SPECDEC_GGUF_STRING, SPECDEC_GGUF_ARRAY, SPECDEC_GGUF_U64,
    SPECDEC_GGUF_I64, SPECDEC_GGUF_F64, SPECDEC_GGUF_TYPES
} specdec_gguf_type;

/* A metadata value. Its bytes are as in the file: little-endian, not aligned. */
typedef struct specdec_gguf_value {
    uint32_t type;              /* a specdec_gguf_type; for an array, that of its items */
    int is_array;
    uint64_t count;             /* items of an array; bytes of a string; else 1 */
    const unsigned char *items;
    size_t bytes;               /* at items */
} specdec_gguf_value;

/* A metadata pair. */
typedef struct specdec_gguf_pair {
    specdec_bytes key;
    specdec_gguf_value value;
    specdec_bytes record;       /* the pair as it stands in the file, to be copied */
} specdec_gguf_pair;

/* A tensor. */
typedef struct specdec_gguf_tensor {
    specdec_bytes name;
    uint32_t type;              /* number of its type: see specdec_type_by_number */
    int dimensions;             /* 1..4 */
    uint64_t shape[4];          /* shape[0] is the length of a row; unused ones are 1 */
    const unsigned char *data;  /* inside the file */
    size_t size;                /* bytes at data; 0 for a type that is not known */
} specdec_gguf_tensor;

#define SPECDEC_GGUF_LONG 8 /* long arrays that are passed over in one leap */

/* An open GGUF file. Read what you like, write nothing. */
typedef struct specdec_gguf {
    specdec_bytes file;
    uint64_t pair_count, tensor_count;
    size_t alignment;           /* of tensors, in bytes */
    size_t pairs_at, tensors_at, tensors_end, data_at;
    struct {
        size_t from, to;
    } strings[SPECDEC_GGUF_LONG]; /* where arrays of strings lie, whose end only a walk over all of them finds */
    int strings_count;
} specdec_gguf;

/* Opens a GGUF file (version 2 or 3; format: ggml/docs/gguf.md) that lies in memory, and checks all of its structure.
   The memory must stay as it is while *gguf and what came from it are used; nothing needs to be closed. Errors:
   ARGUMENT, FORMAT, UNSUPPORTED (another version); the file then counts as empty. */
SPECDEC_DEF specdec_result specdec_gguf_open(specdec_gguf *gguf, const void *data, size_t size, specdec_error *error);

/* The value of a key, or the tensor of a name. Returns 1 when it is there (2: the name is there twice), else 0. */
SPECDEC_DEF int specdec_gguf_find(const specdec_gguf *gguf, const char *key, specdec_gguf_value *value);
SPECDEC_DEF int specdec_gguf_find_tensor(const specdec_gguf *gguf, const char *name, specdec_gguf_tensor *tensor);

/* One after the other: pairs and tensors of a file, strings of an array. *place is 0 before the first one. Returns 0
   when there is none left. */
SPECDEC_DEF int specdec_gguf_next_pair(const specdec_gguf *gguf, size_t *place, specdec_gguf_pair *pair);
SPECDEC_DEF int specdec_gguf_next_tensor(const specdec_gguf *gguf, size_t *place, specdec_gguf_tensor *tensor);
SPECDEC_DEF int specdec_gguf_next_string(const specdec_gguf_value *array, size_t *place, specdec_bytes *string);

/* Item i of an array, or with i = 0 a single value, as an integer (bools, too; what is beyond INT64_MAX becomes that)
   or as a real number (integers, too). Returns 0 when it is of another kind, or when there is no such item. */
SPECDEC_DEF int specdec_gguf_integer(const specdec_gguf_value *value, uint64_t i, int64_t *out);
SPECDEC_DEF int specdec_gguf_real(const specdec_gguf_value *value, uint64_t i, double *out);

/* The integer or bool in [low, high], finite f32, or string of a key. When the key is absent, *out stays as it is: put
   the default there. Errors: ARGUMENT; FORMAT (another type, or out of range), and which key. */
SPECDEC_DEF specdec_result specdec_gguf_get_integer(const specdec_gguf *gguf, const char *key, int64_t low, int64_t
                                                    high, int64_t *out, specdec_error *error);
SPECDEC_DEF specdec_result specdec_gguf_get_float(const specdec_gguf *gguf, const char *key, float *out, specdec_error
                                                  *error);
SPECDEC_DEF specdec_result specdec_gguf_get_string(const specdec_gguf *gguf, const char *key, specdec_bytes *out,
                                                   specdec_error *error);

/* A number format. Values come in blocks: a row of a tensor is a whole number of them. */
typedef struct specdec_type {
    uint32_t number;  /* in files (ggml_type) */
    const char *name; /* "Q4_0" */
    int block, bytes; /* values of a block; its bytes */
    int writable;     /* specdec_type_from_float writes it */
} specdec_type;

#define SPECDEC_TYPE_NUMBERS 31 /* the numbers of types are below this; not all of those below are known */

/* The type of a number or a name. Returns 0 when it is not known. */
SPECDEC_DEF int specdec_type_by_number(uint32_t number, specdec_type *type);
SPECDEC_DEF int specdec_type_by_name(const char *name, specdec_type *type);

/* Bytes of so many values of a type. Errors: ARGUMENT (an unknown type, no whole blocks, too many). */
SPECDEC_DEF specdec_result specdec_type_bytes(uint32_t number, uint64_t values, size_t *bytes, specdec_error *error);

/* Values (whole blocks) of a type to floats, and back with the smallest squared error found. What half floats cannot
   hold comes back infinite or clamped. Errors: ARGUMENT; UNSUPPORTED (a type that is only read). */
SPECDEC_DEF specdec_result specdec_type_to_float(uint32_t number, const void *data, size_t values, float *out,
                                                 specdec_error *error);
SPECDEC_DEF specdec_result specdec_type_from_float(uint32_t number, const float *values, size_t count, void *out,
                                                   specdec_error *error);

/* The instruction sets of this CPU that this build has, by name, from the plainest (index 0) to the best; NULL behind
   the last. */
SPECDEC_DEF const char *specdec_isa_name(int index);

/* Processors that this process may use, 1 to SPECDEC_MAX_THREADS; 1 where it was built without threads. */
SPECDEC_DEF int specdec_processors(void);

/* What is known of a prepared model. */
typedef struct specdec_model_info {
    const char *architecture, *chat_format; /* NULL where they are not known, or only the vocabulary was prepared */
    const char *tokenizer, *words;          /* "SPM"; or "byte-level BPE" and its pre-tokenizer's name */
    int has_template;                       /* it brings a chat template, recognised or not */
    int context, vocabulary, layers, embedding, feed_forward; /* context: tokens that it was trained for */
    int heads, kv_heads, head_size;
    int window, window_layers;              /* keys that some layers see, and how many layers those are; 0: none */
    size_t weight_bytes;                    /* of the matrices that a step reads */
    uint64_t products_per_token;            /* multiply-adds in matrices */
    const specdec_gguf *gguf;               /* its file */
} specdec_model_info;

/* Valid while the model is. Errors: ARGUMENT. */
SPECDEC_DEF specdec_result specdec_get_model_info(const specdec_model *model, specdec_model_info *info);

#ifdef __cplusplus
}
#endif

#endif /* SPECDEC_H */

#ifdef __clang__
#pragma clang diagnostic pop
#endif

#ifdef SPECDEC_IMPLEMENTATION
#ifndef SPECDEC_IMPLEMENTED
#define SPECDEC_IMPLEMENTED

/* Warnings that this file does not heed: they are in no usual set, but a project may have them. Names with two
   underscores are ours alone; casts are those of C, as is NULL; floats are compared with zero on purpose. */
#pragma GCC diagnostic push
#ifdef SPECDEC_KERNELS
#pragma GCC diagnostic ignored "-Wunused-function" /* all but kernels */
#endif
#pragma GCC diagnostic ignored "-Wfloat-equal"
#pragma GCC diagnostic ignored "-Wdouble-promotion"
#pragma GCC diagnostic ignored "-Wpadded"
#ifdef __clang__
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wreserved-identifier"
#pragma clang diagnostic ignored "-Wreserved-macro-identifier"
#pragma clang diagnostic ignored "-Wused-but-marked-unused"
#pragma clang diagnostic ignored "-Wconditional-uninitialized"
#pragma clang diagnostic ignored "-Wc++98-compat-pedantic"
#pragma clang diagnostic ignored "-Wunsafe-buffer-usage"
#pragma clang diagnostic ignored "-Wswitch-default"
#pragma clang diagnostic ignored "-Wdeclaration-after-statement"
#else
#pragma GCC diagnostic ignored "-Wduplicated-branches"
#endif
#ifdef __cplusplus
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wuseless-cast"
#endif
#else
#pragma GCC diagnostic ignored "-Wbad-function-cast"
#endif

/* No compiler may fuse a product with a sum of its own accord: that would change bits. What was set before comes back
   at the end; clang can remember it on x86 only. */
#if defined(__clang__)
#if __clang_major__ >= 12 && defined(__x86_64__)
#pragma float_control(push)
#endif
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
/* Firmware in C unwinds no stack: what debuggers need goes where it is not loaded. gcc has no option for that in a
   file. */
#if defined(SPECDEC_FREESTANDING) && defined(__OPTIMIZE_SIZE__) && defined(__ELF__) && !defined(__cplusplus) && \
    !defined(__EXCEPTIONS)
__asm__(".cfi_sections .debug_frame");
#endif
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
/* Built for size and without kernels: gcc's -Os comes to 2 KB less without these. */
#if defined(__OPTIMIZE_SIZE__) && defined(SPECDEC_NO_SIMD)
#pragma GCC optimize("no-move-loop-invariants", "no-inline-functions-called-once", "no-tree-loop-im", "no-caller-saves")
#endif
#endif

/* The name under which this file includes itself, once per instruction set. */
#ifdef SPECDEC_FILE
#define SPECDEC__FILE SPECDEC_FILE
#elif defined(__FILE_NAME__)
#define SPECDEC__FILE __FILE_NAME__
#else
#define SPECDEC__FILE "specdec.h"
#endif

/* =====================================================================================================================
 * >>base (private): compiler facts, checked arithmetic, byte order, noise, the bump arena, error text, the log.
 *     May call: nothing.
 * ================================================================================================================== */

#include <stdarg.h>
#include <string.h>
#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD)
/* gcc 12 sees uninitialised variables in its own AVX-512 header when it compiles C++ (GCC bug 105593). */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <cpuid.h>
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#elif defined(__aarch64__) && !defined(SPECDEC_NO_SIMD)
#include <arm_neon.h>
#endif

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "specdec.h: -ffast-math changes results; every promise of this file rests on IEEE arithmetic. Remove it."
#endif
/* 16: only _Float16 is evaluated with excess precision */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "specdec.h: floats are evaluated with excess precision here; on 32-bit x86 add -msse2 -mfpmath=sse."
#endif
#if !defined(__GNUC__)
#error "specdec.h needs gcc or clang (vector attributes, atomics)."
#endif

/* Small functions that are called often where time is spent. They are always inlined, but for two kinds of builds.
   Built for size and without kernels, the compiler decides. Without optimisation a debugger can enter them, and frames
   stay small. */
#if !defined(__OPTIMIZE__) || (defined(__OPTIMIZE_SIZE__) && defined(SPECDEC_NO_SIMD))
#define SPECDEC__INLINE static inline __attribute__((unused))
#else
#define SPECDEC__INLINE static inline __attribute__((always_inline, unused))
#endif
/* For a function with a large frame: inlined, it would make the frame of its caller as large. */
#define SPECDEC__NOINLINE __attribute__((noinline, unused))
#define SPECDEC__UNUSED __attribute__((unused))
/* What stands between these two runs once for a model, an engine or a call. gcc builds it for size. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#define SPECDEC__FOR_SIZE _Pragma("GCC push_options") _Pragma("GCC optimize(\"Os\")")
#define SPECDEC__FOR_SPEED _Pragma("GCC pop_options")
#else
#define SPECDEC__FOR_SIZE
#define SPECDEC__FOR_SPEED
#endif
#define SPECDEC__COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SPECDEC__STATIC_ASSERT(name, condition) \
    typedef char specdec__static_assert_##name[(condition) ? 1 : -1] SPECDEC__UNUSED
#define SPECDEC__CACHE_LINE 64

/* Whether chat formats are there. */
#ifdef SPECDEC_NO_CHAT
#define SPECDEC__CHATS 0
#else
#define SPECDEC__CHATS 1
#endif

/* Whether drafts that read the target's states are there. */
#ifdef SPECDEC_NO_HEADS
#define SPECDEC__HEADS 0
#else
#define SPECDEC__HEADS 1
#endif

/* Whether the acceptance rules that need distributions are there: all but coupled and greedy. */
#ifdef SPECDEC_NO_VERIFIERS
#define SPECDEC__VERIFIERS 0
#else
#define SPECDEC__VERIFIERS 1
#endif

/* The name of the format checker. To gcc for Windows, "printf" means a checker that does not know %zu. */
#if defined(__clang__)
#define SPECDEC__PRINTF printf
#else
#define SPECDEC__PRINTF gnu_printf
#endif

/* Unrolls the loop that follows, whose count is a constant. */
#if defined(__OPTIMIZE_SIZE__)
#define SPECDEC__UNROLL
#elif defined(__clang__)
#define SPECDEC__UNROLL _Pragma("clang loop unroll(full)")
#else
#define SPECDEC__UNROLL _Pragma("GCC unroll 16")
#endif

/* specdec__<isa>_<name> */
#define SPECDEC__PASTE_NAMES(isa, name) specdec__##isa##_##name
#define SPECDEC__PASTE(isa, name) SPECDEC__PASTE_NAMES(isa, name)

SPECDEC__STATIC_ASSERT(byte_is_8_bits, (unsigned char)-1 == 255);
SPECDEC__STATIC_ASSERT(float_is_32_bits, sizeof(float) == 4 && sizeof(double) == 8);
SPECDEC__STATIC_ASSERT(int_is_32_bits, sizeof(int) == 4);

typedef specdec_bytes specdec__bytes;

/* Sum and product that saturate at SIZE_MAX, so that a wrapped size can never look small. */
SPECDEC__INLINE size_t specdec__size_add(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

SPECDEC__INLINE size_t specdec__size_multiply(size_t a, size_t b)
{
    return b && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

SPECDEC__INLINE int specdec__min_int(int a, int b) { return a < b ? a : b; }
SPECDEC__INLINE int specdec__max_int(int a, int b) { return a > b ? a : b; }
SPECDEC__INLINE int specdec__round_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Defines function(heap, key, count, at): it sinks heap[at] to its place in a heap of count things. The root of the
   heap is the thing that comes last. before(key, a, b): does a come before b? key is what all things are compared by,
   an array or NULL. */
#define SPECDEC__HEAP(function, type, key_type, before) \
    static void function(type *heap, const key_type *key, int count, int at) \
    { \
        const type moving = heap[at]; \
        \
        (void)key; \
        while (at < count / 2) { \
            int child = 2 * at + 1; \
            \
            if (child + 1 < count && before(key, heap[child], heap[child + 1])) \
                child++; \
            if (!before(key, moving, heap[child])) \
                break; \
            heap[at] = heap[child]; \
            at = child; \
        } \
        heap[at] = moving; \
    }

/* Little-endian loads and stores, for any alignment and any host. */
SPECDEC__INLINE uint16_t specdec__load_u16(const void *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint16_t)(b[0] | (unsigned)b[1] << 8);
}

SPECDEC__INLINE uint32_t specdec__load_u32(const void *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

SPECDEC__INLINE uint64_t specdec__load_u64(const void *at)
{
    return (uint64_t)specdec__load_u32(at) | (uint64_t)specdec__load_u32((const unsigned char *)at + 4) << 32;
}

SPECDEC__INLINE void specdec__store_u16(void *at, uint16_t value)
{
    unsigned char *b = (unsigned char *)at;
    b[0] = (unsigned char)value;
    b[1] = (unsigned char)(value >> 8);
}

SPECDEC__INLINE void specdec__store_u32(void *at, uint32_t value)
{
    specdec__store_u16(at, (uint16_t)value);
    specdec__store_u16((unsigned char *)at + 2, (uint16_t)(value >> 16));
}

SPECDEC__INLINE float specdec__float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

SPECDEC__INLINE uint32_t specdec__bits_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Hides from the compiler where a double comes from: it cannot fuse what made it with what uses it. */
#if defined(__x86_64__)
#define SPECDEC__OPAQUE(value) __asm__("" : "+x"(value))
#elif defined(__aarch64__)
#define SPECDEC__OPAQUE(value) __asm__("" : "+w"(value))
#else
#define SPECDEC__OPAQUE(value) __asm__("" : "+m"(value))
#endif

/* a * b, rounded: no compiler can fuse it with the sum that it goes into, whatever its flags. */
SPECDEC__INLINE double specdec__product(double a, double b)
{
    double product = a * b;

    SPECDEC__OPAQUE(product);
    return product;
}

SPECDEC__INLINE float specdec__load_f32(const void *at) { return specdec__float_from_bits(specdec__load_u32(at)); }

/* For loops that gcc does not vectorise at -O2. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#define SPECDEC__VECTORISE __attribute__((optimize("tree-vectorize", "vect-cost-model=dynamic", "fp-contract=off")))
#else
#define SPECDEC__VECTORISE
#endif

/* Two doubles side by side, and the larger and the smaller of two such pairs: a > b ? a : b and a < b ? a : b. */
typedef double specdec__pair __attribute__((vector_size(16)));

#if defined(__SSE2__) /* gcc does not find these instructions by itself */
#define SPECDEC__LARGER_PAIR(a, b) __builtin_ia32_maxpd((a), (b))
#define SPECDEC__SMALLER_PAIR(a, b) __builtin_ia32_minpd((a), (b))
#else
typedef int64_t specdec__pair_bits __attribute__((vector_size(16)));
#define SPECDEC__LARGER_PAIR(a, b) specdec__pair_select((specdec__pair_bits)((a) > (b)), (a), (b))
#define SPECDEC__SMALLER_PAIR(a, b) specdec__pair_select((specdec__pair_bits)((a) < (b)), (a), (b))

/* a where the mask is set, b elsewhere. */
SPECDEC__INLINE specdec__pair specdec__pair_select(specdec__pair_bits mask, specdec__pair a, specdec__pair b)
{
    return (specdec__pair)((mask & (specdec__pair_bits)a) | (~mask & (specdec__pair_bits)b));
}
#endif

/* Four words side by side. SPECDEC__PICK takes four of the eight words of a and b, by constant numbers. */
typedef uint32_t specdec__words __attribute__((vector_size(16)));

#if defined(__clang__) || __GNUC__ >= 12
#define SPECDEC__PICK(a, b, i, j, k, l) __builtin_shufflevector((a), (b), (i), (j), (k), (l))
#else
#define SPECDEC__PICK(a, b, i, j, k, l) specdec__words_pick((a), (b), (i), (j), (k), (l))

SPECDEC__INLINE specdec__words specdec__words_pick(specdec__words a, specdec__words b, uint32_t i, uint32_t j,
                                                   uint32_t k, uint32_t l)
{
    const specdec__words places = {i, j, k, l};
    return __builtin_shuffle(a, b, places);
}
#endif

/* A bijection of 64-bit numbers whose output bits each depend on every input bit (the finaliser of SplitMix64,
   Steele, Lea and Flood 2014, with Stafford's constants). */
SPECDEC__INLINE uint64_t specdec__mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* 64 random bits for a token of a row; see specdec__sample_noise_row. */
SPECDEC__INLINE uint64_t specdec__noise_at(uint64_t row, uint32_t token)
{
    return specdec__mix(row + (uint64_t)token * 0x9e3779b97f4a7c15u);
}

/* A bump arena over the caller's block. With base == NULL it only counts: the same layout code that fills an engine
   tells beforehand, byte for byte, how much it will need. */
typedef struct specdec__arena {
    unsigned char *base; /* NULL: count only */
    size_t size;         /* bytes at base */
    size_t used;         /* bytes taken so far; SIZE_MAX once a request could not be met */
} specdec__arena;

/* Room for count items of item_size bytes, not zeroed; align is a power of two. NULL while counting or when full. */
static SPECDEC__UNUSED void *specdec__arena_reserve(specdec__arena *arena, size_t count, size_t item_size, size_t align)
{
    size_t bytes = specdec__size_multiply(count, item_size);
    size_t from = specdec__size_add(arena->used, align - 1) & ~(align - 1);
    size_t end = specdec__size_add(from, bytes);

    if (arena->used == SIZE_MAX || end == SIZE_MAX || (arena->base && end > arena->size)) {
        arena->used = SIZE_MAX;
        return NULL;
    }
    arena->used = end;
    return arena->base ? arena->base + from : NULL;
}

/* The same, zeroed. */
static SPECDEC__UNUSED void *specdec__arena_take(specdec__arena *arena, size_t count, size_t item_size, size_t align)
{
    void *room = specdec__arena_reserve(arena, count, item_size, align);

    if (room)
        memset(room, 0, count * item_size);
    return room;
}

#define SPECDEC__TAKE(arena, type, count) \
    ((type *)specdec__arena_take((arena), (size_t)(count), sizeof(type), SPECDEC__CACHE_LINE))

/* Text of bounded length, built piece by piece; always terminated. */
typedef struct specdec__writer {
    char *text;
    size_t size, used;
} specdec__writer;

static specdec__writer specdec__writer_to(char *text, size_t size)
{
    specdec__writer w;

    w.text = text;
    w.size = size;
    w.used = 0;
    return w;
}

static void specdec__write_bytes(specdec__writer *w, const char *bytes, size_t count)
{
    while (count-- && w->used + 1 < w->size) {
        unsigned char c = (unsigned char)*bytes++;
        w->text[w->used++] = (char)(c < 32 || c == 127 ? '?' : c);
    }
    if (w->size)
        w->text[w->used] = 0;
}

static void specdec__write_string(specdec__writer *w, const char *s) { specdec__write_bytes(w, s, strlen(s)); }

static void specdec__write_number(specdec__writer *w, unsigned long long value, int negative)
{
    char digits[24];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    if (negative)
        digits[--at] = '-';
    specdec__write_bytes(w, digits + at, sizeof digits - at);
}

/* The part of printf that error texts need: %s %.*s %d %u %zu %llu %%. Control bytes print as '?'. */
static SPECDEC__UNUSED void specdec__write_format(specdec__writer *w, const char *format, va_list arguments)
{
    for (; *format; format++) {
        const char *percent = strchr(format, '%');
        size_t plain = percent ? (size_t)(percent - format) : strlen(format);

        specdec__write_bytes(w, format, plain);
        if (!percent)
            return;
        format = percent + 1;
        if (*format == 's') {
            specdec__write_string(w, va_arg(arguments, const char *));
        } else if (*format == 'd') {
            int value = va_arg(arguments, int);
            specdec__write_number(w, value < 0 ? 0ull - (unsigned long long)value : (unsigned long long)value,
                                  value < 0);
        } else if (*format == 'u') {
            specdec__write_number(w, va_arg(arguments, unsigned), 0);
        } else if (*format == 'z') {
            specdec__write_number(w, va_arg(arguments, size_t), 0);
            format++;
        } else if (*format == 'l') {
            specdec__write_number(w, va_arg(arguments, unsigned long long), 0);
            format += 2;
        } else if (*format == '.') {
            int count = va_arg(arguments, int);
            specdec__write_bytes(w, va_arg(arguments, const char *), (size_t)specdec__max_int(count, 0));
            format += 2;
        } else {
            specdec__write_bytes(w, "%", 1);
        }
    }
}

#ifdef SPECDEC_NO_ERROR_TEXTS
/* Notes the code of an error, without words. */
static SPECDEC__UNUSED specdec_result specdec__fail_plainly(specdec_error *error, specdec_result code)
{
    if (error) {
        error->code = code;
        error->text[0] = 0;
    }
    return code;
}

/* What would have been formatted is compiled and checked, but never called. */
static SPECDEC__UNUSED __attribute__((format(SPECDEC__PRINTF, 1, 2))) void specdec__fail_words(const char *format, ...)
{
    (void)format;
}

#define specdec__tell(hooks, ...) ((void)(0 ? specdec__fail_words(__VA_ARGS__) : (void)(hooks)))
#define specdec__fail(error, code, ...) \
    ((void)(0 ? specdec__fail_words(__VA_ARGS__) : (void)0), specdec__fail_plainly((error), (code)))
#else
/* Notes what went wrong and returns code, so that a check reads `return specdec__fail(...)`. error may be NULL. */
static SPECDEC__UNUSED __attribute__((format(SPECDEC__PRINTF, 3, 4))) specdec_result
specdec__fail(specdec_error *error, specdec_result code, const char *format, ...)
{
    if (error) {
        specdec__writer w = specdec__writer_to(error->text, sizeof error->text);
        va_list arguments;

        error->code = code;
        va_start(arguments, format);
        specdec__write_format(&w, format, arguments);
        va_end(arguments);
    }
    return code;
}

/* A line for the caller's log. */
static SPECDEC__UNUSED __attribute__((format(SPECDEC__PRINTF, 2, 3))) void
specdec__tell(const specdec_hooks *hooks, const char *format, ...)
{
    char line[160];
    specdec__writer w = specdec__writer_to(line, sizeof line);
    va_list arguments;

    if (!hooks->log)
        return;
    va_start(arguments, format);
    specdec__write_format(&w, format, arguments);
    va_end(arguments);
    hooks->log(hooks->user_data, line);
}
#endif

/* =====================================================================================================================
 * >>os (private): clock, file mapping, threads, atomics, parking; the only #ifdefs on operating systems.
 *     May call: >>base
 *
 * Each part is written for POSIX, for Windows and for no system at all; what the three define has the same names.
 * ================================================================================================================== */

#ifdef SPECDEC_FREESTANDING
#ifndef SPECDEC_NO_FILES
#define SPECDEC_NO_FILES
#endif
#ifndef SPECDEC_NO_THREADS
#define SPECDEC_NO_THREADS
#endif
#ifndef SPECDEC_NO_CLOCK
#define SPECDEC_NO_CLOCK
#endif
#ifndef SPECDEC_NO_ENCODERS
#define SPECDEC_NO_ENCODERS
#endif
#endif

#if defined(_WIN32)
#if !defined(SPECDEC_NO_FILES) || !defined(SPECDEC_NO_THREADS) || !defined(SPECDEC_NO_CLOCK)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#endif
#else
#ifndef SPECDEC_NO_FILES
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif
#ifndef SPECDEC_NO_THREADS
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#endif
#ifndef SPECDEC_NO_CLOCK
#include <time.h>
#endif
#if defined(__aarch64__) && defined(__linux__) && !defined(SPECDEC_FREESTANDING)
#include <sys/auxv.h>
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Atomics: the gcc/clang builtins, which C99 and C++11 share. */
#define SPECDEC__LOAD(at) __atomic_load_n((at), __ATOMIC_ACQUIRE)
#define SPECDEC__STORE(at, value) __atomic_store_n((at), (value), __ATOMIC_RELEASE)
#define SPECDEC__ADD(at, value) __atomic_fetch_add((at), (value), __ATOMIC_ACQ_REL)
#define SPECDEC__SWAP(at, seen, value) \
    __atomic_compare_exchange_n((at), (seen), (value), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* --- processor and clock ------------------------------------------------------------------------------------------ */

#if defined(__aarch64__) && defined(__linux__) && !defined(SPECDEC_FREESTANDING)
/* What Linux tells about an aarch64 processor: the bits of word 0 or 1. Other systems tell nothing this way: 0. */
static SPECDEC__UNUSED unsigned long specdec__os_arm_features(int word)
{
    return getauxval(word ? AT_HWCAP2 : AT_HWCAP);
}
#else
static SPECDEC__UNUSED unsigned long specdec__os_arm_features(int word)
{
    (void)word;
    return 0;
}
#endif

/* Whether vectors wider than 16 bytes may lie on the stack. Windows aligns the stack to 16, and gcc for Windows moves
   wider vectors on it as if they were aligned to their size (GCC bug 54412). SPECDEC_WINDOWS_AVX says that this gcc was
   mended. */
#if defined(_WIN32) && !defined(__clang__) && !defined(SPECDEC_WINDOWS_AVX)
#define SPECDEC__OS_WIDE_STACK 0
#else
#define SPECDEC__OS_WIDE_STACK 1
#endif

/* For functions that files of the library share and that programs shall not see. Windows hides them anyway. */
#if defined(_WIN32)
#define SPECDEC__OS_HIDDEN
#else
#define SPECDEC__OS_HIDDEN __attribute__((visibility("hidden")))
#endif

/* Seconds since some fixed moment; 0 where there is no clock. */
static SPECDEC__UNUSED double specdec__os_seconds(void)
{
#if defined(SPECDEC_NO_CLOCK)
    return 0;
#elif defined(_WIN32)
    LARGE_INTEGER now, second;

    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&second);
    return (double)now.QuadPart / (double)second.QuadPart;
#else
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
}

/* --- files -----------------------------------------------------------------------------------------------------------

   What each system defines: specdec__os_open opens a regular file for reading and tells its size; it returns 1, 0
   when that fails, -1 when the file is of another kind. specdec__os_get reads some bytes: it returns how many, 0 at
   the end, -1 on failure. specdec__os_view maps the first bytes; NULL on failure. specdec__os_why writes into
   text[size] what the system says about the last failure. */

#define SPECDEC__OS_WHY 160 /* bytes of what a system says, at most */

#if defined(SPECDEC_NO_FILES)
#elif defined(_WIN32)
typedef HANDLE specdec__os_file;

static int specdec__os_open(specdec__os_file *file, uint64_t *size, const char *path)
{
    WCHAR wide[1024]; /* paths are UTF-8 */
    LARGE_INTEGER bytes;

    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, (int)SPECDEC__COUNT(wide)))
        return 0;
    *file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                        FILE_ATTRIBUTE_NORMAL, NULL);
    if (*file == INVALID_HANDLE_VALUE)
        return 0;
    if (GetFileType(*file) != FILE_TYPE_DISK || !GetFileSizeEx(*file, &bytes)) {
        CloseHandle(*file);
        return -1;
    }
    *size = (uint64_t)bytes.QuadPart;
    return 1;
}

static ptrdiff_t specdec__os_get(specdec__os_file file, unsigned char *data, size_t size)
{
    DWORD got, part = size < 1u << 30 ? (DWORD)size : 1u << 30;

    return ReadFile(file, data, part, &got, NULL) ? (ptrdiff_t)got : -1;
}

static const void *specdec__os_view(specdec__os_file file, size_t size)
{
    HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    const void *data = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, size) : NULL;

    if (mapping)
        CloseHandle(mapping); /* the view keeps it */
    return data;
}

static void specdec__os_unview(void *data, size_t size)
{
    (void)size;
    UnmapViewOfFile(data);
}

static void specdec__os_close(specdec__os_file file) { CloseHandle(file); }

static void specdec__os_why(char *text, size_t size)
{
    DWORD flags = FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS | FORMAT_MESSAGE_MAX_WIDTH_MASK;
    DWORD length = FormatMessageA(flags, NULL, GetLastError(), 0, text, (DWORD)size, NULL);

    text[length] = 0;
    while (length && text[length - 1] == ' ')
        text[--length] = 0;
}
#else
typedef int specdec__os_file;

static int specdec__os_open(specdec__os_file *file, uint64_t *size, const char *path)
{
    struct stat about;

    *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe without a writer must not hold us up */
    if (*file < 0)
        return 0;
    if (fstat(*file, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(*file);
        return -1;
    }
    *size = about.st_size > 0 ? (uint64_t)about.st_size : 0;
    return 1;
}

static ptrdiff_t specdec__os_get(specdec__os_file file, unsigned char *data, size_t size)
{
    ssize_t got;

    do
        got = read(file, data, size);
    while (got < 0 && errno == EINTR);
    return got;
}

static const void *specdec__os_view(specdec__os_file file, size_t size)
{
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);

    return data == MAP_FAILED ? NULL : data;
}

static void specdec__os_unview(void *data, size_t size) { munmap(data, size); }

static void specdec__os_close(specdec__os_file file) { close(file); }

static void specdec__os_why(char *text, size_t size)
{
    specdec__writer w = specdec__writer_to(text, size);

    specdec__write_string(&w, strerror(errno));
}
#endif

#if defined(SPECDEC_NO_FILES)
static specdec_result specdec__os_no_files(const char *path, specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "built without files: hand %s over as memory", path);
}

static SPECDEC__UNUSED specdec_result specdec__os_map(specdec__bytes *out, const char *path, specdec_error *error)
{
    (void)out;
    return specdec__os_no_files(path, error);
}

static SPECDEC__UNUSED specdec_result specdec__os_read(unsigned char *data, size_t size, const char *path,
                                                       specdec_error *error)
{
    (void)data;
    (void)size;
    return specdec__os_no_files(path, error);
}

static SPECDEC__UNUSED void specdec__os_unmap(specdec__bytes *file) { (void)file; }
#else
/* Says that a file cannot be opened, read or mapped, and why. */
static specdec_result specdec__os_refused(const char *what, const char *path, specdec_error *error)
{
    char why[SPECDEC__OS_WHY];

    specdec__os_why(why, sizeof why);
    return specdec__fail(error, SPECDEC_ERROR_FILE, "cannot %s %s: %s", what, path, why);
}

/* Opens a regular file for reading. */
static specdec_result specdec__os_open_regular(specdec__os_file *file, uint64_t *size, const char *path,
                                               specdec_error *error)
{
    int opened = specdec__os_open(file, size, path);

    if (opened < 0)
        return specdec__fail(error, SPECDEC_ERROR_FILE, "%s is not a regular file", path);
    return opened ? SPECDEC_OK : specdec__os_refused("open", path, error);
}

/* A whole regular file, mapped read-only. */
static SPECDEC__UNUSED specdec_result specdec__os_map(specdec__bytes *out, const char *path, specdec_error *error)
{
    specdec__os_file file;
    uint64_t size = 0;
    specdec_result result = specdec__os_open_regular(&file, &size, path, error);

    if (result)
        return result;
    if (!size || size > (uint64_t)(SIZE_MAX / 2)) {
        result = specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is %s", path, size ? "too large to map" : "empty");
    } else {
        out->size = (size_t)size;
        out->data = (const unsigned char *)specdec__os_view(file, out->size);
        if (!out->data)
            result = specdec__os_refused("map", path, error);
    }
    specdec__os_close(file);
    return result;
}

/* Reads a file of exactly `size` bytes. */
static SPECDEC__UNUSED specdec_result specdec__os_read(unsigned char *data, size_t size, const char *path,
                                                       specdec_error *error)
{
    specdec__os_file file;
    uint64_t now = 0;
    size_t done = 0;
    ptrdiff_t got = 0;
    specdec_result result = specdec__os_open_regular(&file, &now, path, error);

    if (result)
        return result;
    while (done < size && (got = specdec__os_get(file, data + done, size - done)) > 0)
        done += (size_t)got;
    if (got < 0)
        result = specdec__os_refused("read", path, error);
    else if (done < size)
        result = specdec__fail(error, SPECDEC_ERROR_FILE, "%s shrank while it was read", path);
    specdec__os_close(file);
    return result;
}

/* Ends a mapping. Does nothing when there is none, or none any more. */
static SPECDEC__UNUSED void specdec__os_unmap(specdec__bytes *file)
{
    if (file->data)
        specdec__os_unview((void *)(uintptr_t)file->data, file->size);
    file->data = NULL;
    file->size = 0;
}
#endif

/* --- threads ---------------------------------------------------------------------------------------------------------

   What each system defines: specdec__os_begin starts thread->function. Where SPECDEC__OS_LENT is 1, it runs on the
   stack that is handed over; elsewhere the system brings a stack of that size. It returns 0 when the thread is refused.
   A lot is where threads sleep. specdec__os_park sleeps until *word differs from value; specdec__os_wake makes all who
   sleep in a lot look at their words again. */

typedef void specdec__os_function(void *argument);

#if defined(SPECDEC_NO_THREADS)
#define SPECDEC__OS_THREADS 0
#define SPECDEC__OS_LENT 0

typedef int specdec__os_handle, specdec__os_lot;
#elif defined(_WIN32)
#define SPECDEC__OS_THREADS 1
#define SPECDEC__OS_LENT 0

typedef HANDLE specdec__os_handle;

typedef struct specdec__os_lot {
    SRWLOCK lock;
    CONDITION_VARIABLE changed;
} specdec__os_lot;
#else
#define SPECDEC__OS_THREADS 1
#define SPECDEC__OS_LENT 1

typedef pthread_t specdec__os_handle;

typedef struct specdec__os_lot {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
} specdec__os_lot;
#endif

typedef struct specdec__os_thread {
    specdec__os_handle handle;
    specdec__os_function *function;
    void *argument;
} specdec__os_thread;

#if defined(SPECDEC_NO_THREADS)
static SPECDEC__UNUSED int specdec__os_processors(void) { return 1; }
static void specdec__os_yield(void) {}
static int specdec__os_begin(specdec__os_thread *t, void *s, size_t bytes) { return (void)t, (void)s, (void)bytes, 0; }
static void specdec__os_join(specdec__os_thread *thread) { (void)thread; }
static void specdec__os_lot_init(specdec__os_lot *lot) { *lot = 0; }
static void specdec__os_lot_deinit(specdec__os_lot *lot) { (void)lot; }
static void specdec__os_park(specdec__os_lot *l, unsigned *word, unsigned value) { (void)l, (void)word, (void)value; }
static void specdec__os_wake(specdec__os_lot *lot) { (void)lot; }
#elif defined(_WIN32)
/* Processors that this process may use, at least 1; only those of the processor group that it was started in are
   counted, at most 64. */
static SPECDEC__UNUSED int specdec__os_processors(void)
{
    DWORD_PTR ours, all;
    int known = GetProcessAffinityMask(GetCurrentProcess(), &ours, &all);
    int count = known ? __builtin_popcountll((unsigned long long)ours) : 1;

    return count < 1 ? 1 : count > SPECDEC_MAX_THREADS ? SPECDEC_MAX_THREADS : count;
}

static void specdec__os_yield(void) { SwitchToThread(); }

static DWORD WINAPI specdec__os_main(LPVOID argument)
{
    specdec__os_thread *thread = (specdec__os_thread *)argument;

    thread->function(thread->argument);
    return 0;
}

static int specdec__os_begin(specdec__os_thread *thread, void *stack, size_t bytes)
{
    (void)stack;
    thread->handle = CreateThread(NULL, bytes, specdec__os_main, thread, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    return thread->handle != NULL;
}

static void specdec__os_join(specdec__os_thread *thread)
{
    WaitForSingleObject(thread->handle, INFINITE);
    CloseHandle(thread->handle);
}

static void specdec__os_lot_init(specdec__os_lot *lot)
{
    InitializeSRWLock(&lot->lock);
    InitializeConditionVariable(&lot->changed);
}

static void specdec__os_lot_deinit(specdec__os_lot *lot) { (void)lot; }

static void specdec__os_park(specdec__os_lot *lot, unsigned *word, unsigned value)
{
    AcquireSRWLockExclusive(&lot->lock);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
        SleepConditionVariableSRW(&lot->changed, &lot->lock, INFINITE, 0);
    ReleaseSRWLockExclusive(&lot->lock);
}

static void specdec__os_wake(specdec__os_lot *lot)
{
    AcquireSRWLockExclusive(&lot->lock);
    WakeAllConditionVariable(&lot->changed);
    ReleaseSRWLockExclusive(&lot->lock);
}
#else
/* Processors that this process may use, at least 1. */
static SPECDEC__UNUSED int specdec__os_processors(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);

#if defined(__linux__) && defined(SYS_sched_getaffinity)
    unsigned long mask[128]; /* 8192 processors on 64-bit systems */
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask), i;

    if (bytes > 0)
        for (count = 0, i = 0; i < bytes / (long)sizeof *mask; i++)
            count += __builtin_popcountl(mask[i]);
#endif
    return count < 1 ? 1 : count > SPECDEC_MAX_THREADS ? SPECDEC_MAX_THREADS : (int)count;
}

static void specdec__os_yield(void) { sched_yield(); }

static void *specdec__os_main(void *argument)
{
    specdec__os_thread *thread = (specdec__os_thread *)argument;

    thread->function(thread->argument);
    return NULL;
}

static int specdec__os_begin(specdec__os_thread *thread, void *stack, size_t bytes)
{
    pthread_attr_t attributes;
    int failed;

    pthread_attr_init(&attributes);
    failed = pthread_attr_setstack(&attributes, stack, bytes);
    failed = failed ? failed : pthread_create(&thread->handle, &attributes, specdec__os_main, thread);
    pthread_attr_destroy(&attributes);
    return !failed;
}

static void specdec__os_join(specdec__os_thread *thread) { pthread_join(thread->handle, NULL); }

static void specdec__os_lot_init(specdec__os_lot *lot)
{
    pthread_mutex_init(&lot->mutex, NULL);
    pthread_cond_init(&lot->changed, NULL);
}

static void specdec__os_lot_deinit(specdec__os_lot *lot)
{
    pthread_cond_destroy(&lot->changed);
    pthread_mutex_destroy(&lot->mutex);
}

static void specdec__os_park(specdec__os_lot *lot, unsigned *word, unsigned value)
{
    pthread_mutex_lock(&lot->mutex);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
        pthread_cond_wait(&lot->changed, &lot->mutex);
    pthread_mutex_unlock(&lot->mutex);
}

static void specdec__os_wake(specdec__os_lot *lot)
{
    pthread_mutex_lock(&lot->mutex);
    pthread_cond_broadcast(&lot->changed);
    pthread_mutex_unlock(&lot->mutex);
}
#endif

/* Starts function(argument) on a thread; *thread must stay where it is until it is joined. Returns 0 when refused. */
static int specdec__os_start(specdec__os_thread *thread, void *stack, size_t bytes, specdec__os_function *function,
                             void *argument)
{
    thread->function = function;
    thread->argument = argument;
    return specdec__os_begin(thread, stack, bytes);
}

/* =====================================================================================================================
 * >>pool (private): threads that run one function side by side, meet at barriers, share out ranges and watch a cancel
 *     flag. May call: >>base >>os
 *
 * A pool is the thread that calls specdec__pool_run, as thread 0, and helpers on seats. A part of a pool's seats (a
 * team) that a thread of its own leads is a pool, too: it has its own cursor, barrier and cancel flag. Pools that run
 * at the same time must have no seat in common.
 * ================================================================================================================== */

#define SPECDEC__SPINS 2000         /* looks at a flag before a waiting thread parks: some fifty microseconds */
#define SPECDEC__STACK (256 * 1024) /* bytes of each helper thread's stack, inside the caller's block */

typedef void specdec__team_function(void *argument, int thread);

/* A helper thread. It waits until it is called, takes part in one run of a pool, and waits again. */
typedef struct specdec__seat {
    specdec__os_thread thread;
    struct specdec__crew *crew;
    struct specdec__pool *pool; /* whose run it is called to; NULL: the thread ends */
    int number;                 /* which thread of that pool it is */
    unsigned calls;
    unsigned char apart[SPECDEC__CACHE_LINE]; /* what it waits for shares no cache line with the next seat */
} specdec__seat;

/* All helper threads, and where those who wait long sleep. A pool and its parts share it. */
typedef struct specdec__crew {
    specdec__seat *seats; /* (count) */
    int count;
    int asleep;           /* seats that sleep until they are called */
    specdec__os_lot lot;
} specdec__crew;

/* A pool or a part of one. It lives as long as its crew: a helper that leaves a barrier late still looks at it. */
typedef struct specdec__pool {
    specdec__crew *crew;  /* NULL: the caller is alone */
    int *cancel;          /* the engine's flag, set from anywhere */
    specdec__team_function *function;
    void *argument;
    int first;            /* seat of thread 1; those of the others follow */
    int threads;          /* the caller's included */
    int active;           /* threads in the run under way: 0 .. active - 1 */
    int arrived;          /* threads at the barrier */
    unsigned phase;       /* bumped when a barrier opens */
    int asleep;           /* threads that sleep until it opens */
    int stopped;          /* what the barrier saw in *cancel: the same for every thread */
    int cursor;           /* next unclaimed item of the phase */
} specdec__pool;

SPECDEC__INLINE void specdec__pool_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits until *word differs from value: spins first, then sleeps. *asleep counts the threads that sleep. */
static void specdec__pool_wait(specdec__crew *crew, int *asleep, unsigned *word, unsigned value)
{
    int i;

    for (i = 0; i < SPECDEC__SPINS; i++) {
        if (SPECDEC__LOAD(word) != value)
            return;
        if (i % 64 == 63)
            specdec__os_yield(); /* the thread that is waited for may want this very core */
        else
            specdec__pool_relax();
    }
    __atomic_fetch_add(asleep, 1, __ATOMIC_SEQ_CST);
    specdec__os_park(&crew->lot, word, value);
    __atomic_fetch_sub(asleep, 1, __ATOMIC_SEQ_CST);
}

/* Wakes the threads that *asleep counts. The caller has changed the word that they wait for. */
static void specdec__pool_wake(specdec__crew *crew, int *asleep)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* a thread that goes to sleep counts itself, then looks again */
    if (__atomic_load_n(asleep, __ATOMIC_SEQ_CST))
        specdec__os_wake(&crew->lot);
}

/* All threads of a run meet here; the next phase's cursor is at 0 when they leave. */
static void specdec__pool_meet(specdec__pool *pool)
{
    unsigned phase = SPECDEC__LOAD(&pool->phase);
    /* read before arriving: afterwards the next run may already have changed it */
    int last = SPECDEC__OS_THREADS ? pool->active - 1 : 0;

    if (last && SPECDEC__ADD(&pool->arrived, 1) != last) {
        specdec__pool_wait(pool->crew, &pool->asleep, &pool->phase, phase);
        return;
    }
    pool->arrived = 0;
    pool->stopped |= SPECDEC__LOAD(pool->cancel);
    pool->cursor = 0;
    if (last) {
        SPECDEC__STORE(&pool->phase, phase + 1);
        specdec__pool_wake(pool->crew, &pool->asleep);
    }
}

/* Threads of the run under way. */
SPECDEC__INLINE int specdec__pool_active(const specdec__pool *pool) { return SPECDEC__OS_THREADS ? pool->active : 1; }

/* All threads meet here in the middle of a run. Returns 1 once the run is cancelled. Every thread gets the same answer,
   so that all leave together. */
static int specdec__pool_barrier(specdec__pool *pool)
{
    specdec__pool_meet(pool);
    return pool->stopped;
}

/* Claims a part of what is left of [0, count): an even number of items, at least `least`. Returns the first item of the
   part and sets *end behind its last; returns count when all are taken. Faster threads come back more often, and parts
   get smaller towards the end, so all threads end at about the same time. */
static int specdec__pool_claim(specdec__pool *pool, int count, int least, int *end)
{
    int from, part;

    if (specdec__pool_active(pool) == 1) {
        from = pool->cursor;
        pool->cursor = *end = count;
        return from;
    }
    from = SPECDEC__LOAD(&pool->cursor);
    do {
        if (from >= count)
            return count;
        part = specdec__max_int(least, (count - from) / (pool->active * 3) & ~1);
        part = specdec__min_int(part, count - from);
    } while (!SPECDEC__SWAP(&pool->cursor, &from, from + part));
    *end = from + part;
    return from;
}

/* A thread's way through [0, count). It claims its next part before the present one is done, so it knows early what
   comes next. */
typedef struct specdec__walk {
    specdec__pool *pool;
    int count, least;
    int at, end;        /* what is left of the present part, from the item at hand on; at = count: nothing */
    int next, next_end; /* the part after it; next = -1: not claimed yet */
} specdec__walk;

static void specdec__walk_begin(specdec__walk *walk, specdec__pool *pool, int count, int least)
{
    walk->pool = pool;
    walk->count = count;
    walk->least = least;
    walk->end = walk->next_end = 0;
    walk->at = specdec__pool_claim(pool, count, least, &walk->end);
    walk->next = -1;
}

/* The item that follows the n items at hand. When none follows: the last of these n. */
static int specdec__walk_next(specdec__walk *walk, int n)
{
    if (walk->at + n < walk->end)
        return walk->at + n;
    if (walk->next < 0)
        walk->next = specdec__pool_claim(walk->pool, walk->count, walk->least, &walk->next_end);
    return walk->next < walk->count ? walk->next : walk->at + n - 1;
}

/* Moves on by n items. specdec__walk_next must have been asked for the one after them. */
static void specdec__walk_on(specdec__walk *walk, int n)
{
    walk->at += n;
    if (walk->at < walk->end)
        return;
    walk->at = walk->next;
    walk->end = walk->next_end;
    walk->next = -1;
}

/* Calls the helpers to a run: all threads but the first, which is the caller. */
static void specdec__pool_call(specdec__pool *pool)
{
    int i;

    for (i = 1; i < pool->active; i++) {
        specdec__seat *seat = &pool->crew->seats[pool->first + i - 1];

        seat->pool = pool;
        seat->number = i;
        SPECDEC__STORE(&seat->calls, seat->calls + 1);
    }
    specdec__pool_wake(pool->crew, &pool->crew->asleep);
}

/* Runs function(argument, thread) on the first `threads` threads, with the caller as thread 0; other threads sleep on.
   Returns when all are done: 1 when the run was cancelled at a barrier, else 0. */
static int specdec__pool_run(specdec__pool *pool, int threads, specdec__team_function *function, void *argument)
{
    pool->function = function;
    pool->argument = argument;
    pool->active = threads < pool->threads ? threads : pool->threads;
    pool->cursor = 0;
    pool->stopped = 0;
    if (SPECDEC__OS_THREADS && pool->active > 1)
        specdec__pool_call(pool);
    function(argument, 0);
    specdec__pool_meet(pool);
    return pool->stopped;
}

/* What a helper runs: it waits for a call, takes part in a run, and waits again. No run ends without its helpers, so no
   call is missed. */
static void specdec__pool_helper(void *argument)
{
    specdec__seat *seat = (specdec__seat *)argument;
    unsigned calls = 0;

    for (;;) {
        specdec__pool *pool;

        specdec__pool_wait(seat->crew, &seat->crew->asleep, &seat->calls, calls++);
        pool = seat->pool;
        if (!pool)
            return;
        pool->function(pool->argument, seat->number);
        specdec__pool_meet(pool);
    }
}

/* Stops and joins the helpers; parts end with the pool. A zeroed pool, or one that has been stopped, is left alone. */
static void specdec__pool_deinit(specdec__pool *pool)
{
    specdec__crew *crew = pool->crew;
    int i;

    pool->threads = 0;
    if (!SPECDEC__OS_THREADS || !crew)
        return;
    for (i = 0; i < crew->count; i++) {
        crew->seats[i].pool = NULL;
        SPECDEC__STORE(&crew->seats[i].calls, crew->seats[i].calls + 1);
    }
    specdec__pool_wake(crew, &crew->asleep);
    for (i = 0; i < crew->count; i++)
        specdec__os_join(&crew->seats[i].thread);
    specdec__os_lot_deinit(&crew->lot);
    pool->crew = NULL;
}

/* Makes a pool of `threads` threads: the one that will call specdec__pool_run with it, and threads - 1 helpers of
   another pool, from seat `first` on. It ends with that pool. */
static SPECDEC__UNUSED void specdec__pool_part(specdec__pool *part, const specdec__pool *whole, int first, int threads,
                                               int *cancel)
{
    memset(part, 0, sizeof *part);
    part->crew = whole->crew;
    part->first = whole->first + first;
    part->threads = part->active = threads;
    part->cancel = cancel;
}

/* Starts a helper for every seat, on stacks of SPECDEC__STACK bytes each. */
static specdec_result specdec__pool_start(specdec__pool *pool, int helpers, unsigned char *stacks, specdec_error *error)
{
    specdec__crew *crew = pool->crew;

    specdec__os_lot_init(&crew->lot);
    for (; crew->count < helpers; crew->count++) {
        specdec__seat *seat = &crew->seats[crew->count];
        void *stack = SPECDEC__OS_LENT ? stacks + (size_t)crew->count * SPECDEC__STACK : NULL;

        seat->crew = crew;
        if (!specdec__os_start(&seat->thread, stack, SPECDEC__STACK, specdec__pool_helper, seat)) {
            int failed = crew->count + 2;

            specdec__pool_deinit(pool);
            return specdec__fail(error, SPECDEC_ERROR_SYSTEM, "cannot start thread %d of %d", failed, helpers + 1);
        }
    }
    pool->threads = helpers + 1;
    return SPECDEC_OK;
}

/* Starts threads - 1 helpers. They lie in the arena; so do their stacks, where the system allows that. While the arena
   only counts, nothing is started. */
static specdec_result specdec__pool_init(specdec__pool *pool, int threads, int *cancel, specdec__arena *arena,
                                         specdec_error *error)
{
    int helpers = SPECDEC__OS_THREADS ? threads - 1 : 0;
    specdec__crew *crew = NULL;
    unsigned char *stacks = NULL;

    if (helpers) {
        specdec__seat *seats = SPECDEC__TAKE(arena, specdec__seat, helpers);

        crew = SPECDEC__TAKE(arena, specdec__crew, 1);
        stacks = (unsigned char *)specdec__arena_take(arena, SPECDEC__OS_LENT * (size_t)helpers, SPECDEC__STACK, 4096);
        if (crew)
            crew->seats = seats;
    }
    if (!arena->base)
        return SPECDEC_OK;
    memset(pool, 0, sizeof *pool);
    pool->threads = pool->active = 1;
    pool->cancel = cancel;
    pool->crew = stacks ? crew : NULL;
    return pool->crew ? specdec__pool_start(pool, helpers, stacks, error) : SPECDEC_OK;
}

/* =====================================================================================================================
 * >>quant (private): GGUF block formats: sizes, decoding, encoding, repacking into tiles of 16 rows. May call: >>base
 * ================================================================================================================== */

/* Every type that is read, a row each, in the order of their numbers in files (ggml_type). All that depends on the type
   alone follows from its row. To add a type, write the struct of its block, its decoder and a row. It then runs on
   every instruction set; faster kernels for it may be entered in the tables of >>kernel. */
#define SPECDEC__QUANT_TYPES(X) \
    /* number, name, block, bytes, granule, bits, has_minimum, decode, fields: see specdec__quant_type */ \
    X(0, F32, 1, 4, 0, 0, 0, NULL, {4, 1}) \
    X(1, F16, 1, 2, 0, 0, 0, NULL, {2, 1}) \
    X(2, Q4_0, 32, sizeof(specdec__block_q4_0), 32, 4, 0, specdec__quant_decode_q4_0, \
      {2, 1}, {4, 4}) \
    X(3, Q4_1, 32, sizeof(specdec__block_q4_1), 32, 4, 1, specdec__quant_decode_q4_1, {2, 2}, {4, 4}) \
    X(6, Q5_0, 32, sizeof(specdec__block_q5_0), 32, 5, 0, specdec__quant_decode_q5_0, \
      {2, 1}, {SPECDEC__QUANT_BITS32, 1}, {4, 4}) \
    X(7, Q5_1, 32, sizeof(specdec__block_q5_1), 32, 5, 1, specdec__quant_decode_q5_1, \
      {2, 2}, {SPECDEC__QUANT_BITS32, 1}, {4, 4}) \
    X(8, Q8_0, 32, sizeof(specdec__block_q8_0), 32, 8, 0, specdec__quant_decode_q8_0, \
      {2, 1}, {4, 8}) \
    X(10, Q2_K, 256, sizeof(specdec__block_q2_k), 16, 2, 1, specdec__quant_decode_q2_k, \
      {1, 16}, {4, 16}, {2, 2}) \
    X(11, Q3_K, 256, sizeof(specdec__block_q3_k), 16, 3, 0, specdec__quant_decode_q3_k, \
      {4, 8}, {4, 16}, {1, 12}, {2, 1}) \
    X(12, Q4_K, 256, sizeof(specdec__block_q4_k), 32, 4, 1, specdec__quant_decode_q4_k, \
      {2, 2}, {1, 12}, {4, 32}) \
    X(13, Q5_K, 256, sizeof(specdec__block_q5_k), 32, 5, 1, specdec__quant_decode_q5_k, \
      {2, 2}, {1, 12}, {4, 8}, {4, 32}) \
    X(14, Q6_K, 256, sizeof(specdec__block_q6_k), 16, 6, 0, specdec__quant_decode_q6_k, \
      {4, 32}, {4, 16}, {1, 16}, {2, 1}) \
    X(16, IQ2_XXS, 256, sizeof(specdec__block_iq2_xxs), 32, 8, 0, specdec__quant_decode_iq2_xxs, \
      {2, 1}, {4, 16}) \
    X(17, IQ2_XS, 256, sizeof(specdec__block_iq2_xs), 16, 8, 0, specdec__quant_decode_iq2_xs, \
      {2, 1}, {4, 16}, {4, 2}) \
    X(18, IQ3_XXS, 256, sizeof(specdec__block_iq3_xxs), 32, 8, 0, specdec__quant_decode_iq3_xxs, \
      {2, 1}, {4, 24}) \
    X(20, IQ4_NL, 32, sizeof(specdec__block_iq4_nl), 32, 8, 0, specdec__quant_decode_iq4_nl, {2, 1}, {4, 4}) \
    X(21, IQ3_S, 256, sizeof(specdec__block_iq3_s), 32, 8, 0, specdec__quant_decode_iq3_s, \
      {2, 1}, {4, 24}, {4, 3}) \
    X(22, IQ2_S, 256, sizeof(specdec__block_iq2_s), 16, 8, 0, specdec__quant_decode_iq2_s, \
      {2, 1}, {4, 16}, {4, 4}) \
    X(23, IQ4_XS, 256, sizeof(specdec__block_iq4_xs), 32, 8, 0, specdec__quant_decode_iq4_xs, \
      {2, 1}, {2, 1}, {1, 4}, {4, 32}) \
    X(30, BF16, 1, 2, 0, 0, 0, NULL, {2, 1})

#define SPECDEC__QUANT_NUMBER(number, name, ...) SPECDEC__TYPE_##name = number,
enum { SPECDEC__QUANT_TYPES(SPECDEC__QUANT_NUMBER) SPECDEC__TYPE_COUNT };
enum { SPECDEC__TYPE_I32 = 26, SPECDEC__TYPE_I64 = 27 }; /* for tensors that hold no weights */

/* SPECDEC__HAS(name): is the type wanted? A constant, so that no machine code remains of types that are not. */
#ifdef SPECDEC_TYPES
#define SPECDEC__QUANT_WANT(name) | 1 << SPECDEC__TYPE_##name
enum {
    SPECDEC__QUANT_WANTED = 1 << SPECDEC__TYPE_F32 | 1 << SPECDEC__TYPE_F16 | 1 << SPECDEC__TYPE_BF16 |
                            1 << SPECDEC__TYPE_Q8_0 SPECDEC_TYPES(SPECDEC__QUANT_WANT)
};
#else
enum { SPECDEC__QUANT_WANTED = 0x7FFFFFFF };
#endif
#define SPECDEC__HAS(name) (SPECDEC__QUANT_WANTED >> SPECDEC__TYPE_##name & 1)

#define SPECDEC__QUANT_BLOCK 256    /* elements of the largest block */
#define SPECDEC__QUANT_GRANULES 16  /* scales of a block, at most */
#define SPECDEC__QUANT_BYTES 210    /* bytes of a quantised block, at most */
#define SPECDEC__QUANT_ROWS 16      /* rows of a tile */
#define SPECDEC__QUANT_FIELDS 4     /* fields of a block, at most */
#define SPECDEC__QUANT_BITS32 32    /* unit of a field: a 32-bit word whose bits are transposed from 8x4 to 4x8 */

/* One field of a block: count units of unit bytes each (or SPECDEC__QUANT_BITS32), kept together by the tiles. */
typedef struct specdec__quant_field {
    unsigned char unit, count; /* 1, 2, 4 or SPECDEC__QUANT_BITS32; 0 ends the list */
} specdec__quant_field;

/* block (bytes) -> codes (block), scale and minimum (block / granule each; minimum untouched without has_minimum). */
typedef void specdec__quant_decoder(const unsigned char *block, int8_t *codes, float *scale, float *minimum);

/* What is known of a type. Element i of a block is exactly scale[i / granule] * code[i] + minimum[i / granule]; the
   product never rounds, so it does not matter whether a compiler fuses it with the sum. */
typedef struct specdec__quant_type {
    uint32_t number;    /* SPECDEC__TYPE_... */
    const char *name;   /* as everybody writes it: "Q4_0" */
    uint16_t block;     /* elements of a block */
    uint16_t bytes;     /* bytes of a block */
    uint16_t granule;   /* elements that share a scale, 16 or 32; 0 for plain floats */
    uint16_t bits;      /* of a code: it is in [0, 2^bits) with a minimum, else in [-2^bits / 2, 2^bits / 2) */
    uint16_t has_minimum; /* it has no more than 5 bits then */
    specdec__quant_decoder *decode; /* NULL for plain floats, and for types that were left out */
    specdec__quant_field fields[SPECDEC__QUANT_FIELDS]; /* of a block, in order: see specdec__quant_interleave */
} specdec__quant_type;

/* Half float to float: exact, subnormals and infinities included; a NaN keeps its payload. */
SPECDEC__INLINE float specdec__float_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u, mantissa = half & 0x3FFu;

    if (exponent == 0) {
        float magnitude = (float)mantissa * (1.0f / 16777216.0f);
        return sign ? -magnitude : magnitude;
    }
    return specdec__float_from_bits(sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | mantissa << 13);
}

/* Float to half float, to nearest even; from 65520 on infinite, a NaN stays a NaN. All cases are computed, so that
   loops become vectors: below 2^-14, the sum with 1/2 rounds where a half float ends. */
SPECDEC__INLINE uint16_t specdec__f16_from_float(float value)
{
    int32_t bits = (int32_t)(specdec__bits_from_float(value) & 0x7FFFFFFFu);
    int32_t sign = (int32_t)(specdec__bits_from_float(value) >> 16 & 0x8000u);
    int32_t small = (int32_t)specdec__bits_from_float(specdec__float_from_bits((uint32_t)bits) + 0.5f) - 0x3F000000;
    int32_t half = (bits - 0x38000000 + 0xFFF + (bits >> 13 & 1)) >> 13;

    half = bits < 0x38800000 ? small : half;
    half = bits < 0x47800000 ? half : 0x7C00;
    half = bits > 0x7F800000 ? 0x7E00 | (bits >> 13 & 0x3FF) : half;
    return (uint16_t)(sign | half);
}

/* bfloat16 to float: exact. */
SPECDEC__INLINE float specdec__float_from_bf16(uint16_t brain)
{
    return specdec__float_from_bits((uint32_t)brain << 16);
}

/* Float to bfloat16, to nearest even; a NaN stays a NaN. */
SPECDEC__INLINE uint16_t specdec__bf16_from_float(float value)
{
    uint32_t bits = specdec__bits_from_float(value);

    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/* The half float at an address. */
SPECDEC__INLINE float specdec__load_f16(const void *at) { return specdec__float_from_f16(specdec__load_u16(at)); }

/* Blocks as they stand in files, little-endian; d and dmin are half floats. A tile has the same parts, 16 times as
   long. */
typedef struct specdec__block_q4_0 { unsigned char d[2], nibbles[16]; } specdec__block_q4_0;
typedef struct specdec__block_q4_1 { unsigned char d[2], minimum[2], nibbles[16]; } specdec__block_q4_1;
typedef struct specdec__block_q5_0 { unsigned char d[2], high[4], nibbles[16]; } specdec__block_q5_0;
typedef struct specdec__block_q5_1 { unsigned char d[2], minimum[2], high[4], nibbles[16]; } specdec__block_q5_1;
typedef struct specdec__block_q8_0 { unsigned char d[2], codes[32]; } specdec__block_q8_0;
typedef struct specdec__block_q2_k { unsigned char scales[16], crumbs[64], d[2], dmin[2]; } specdec__block_q2_k;
typedef struct specdec__block_q3_k { unsigned char high[32], crumbs[64], scales[12], d[2]; } specdec__block_q3_k;
typedef struct specdec__block_q4_k { unsigned char d[2], dmin[2], scales[12], nibbles[128]; } specdec__block_q4_k;
typedef struct specdec__block_q5_k {
    unsigned char d[2], dmin[2], scales[12], high[32], nibbles[128];
} specdec__block_q5_k;
typedef struct specdec__block_q6_k { unsigned char nibbles[128], crumbs[64], scales[16], d[2]; } specdec__block_q6_k;
typedef struct specdec__block_iq2_xxs { unsigned char d[2], groups[8][8]; } specdec__block_iq2_xxs;
typedef struct specdec__block_iq2_xs { unsigned char d[2], words[32][2], scales[8]; } specdec__block_iq2_xs;
typedef struct specdec__block_iq2_s {
    unsigned char d[2], index[32], signs[32], high[8], scales[8];
} specdec__block_iq2_s;
typedef struct specdec__block_iq3_xxs { unsigned char d[2], index[64], words[8][4]; } specdec__block_iq3_xxs;
typedef struct specdec__block_iq3_s {
    unsigned char d[2], index[64], high[8], signs[32], scales[4];
} specdec__block_iq3_s;
typedef struct specdec__block_iq4_nl { unsigned char d[2], nibbles[16]; } specdec__block_iq4_nl;
typedef struct specdec__block_iq4_xs { unsigned char d[2], high[2], low[4], nibbles[8][16]; } specdec__block_iq4_xs;

/* The 16 values of IQ4_NL and IQ4_XS. */
static const int8_t specdec__quant_iq4_values[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* The 256 points of IQ2_XXS: 8 magnitudes a point, 2 bits each (0, 1, 2 for 8, 25, 43), the first one lowest. */
static const uint16_t specdec__quant_iq2_xxs_grid[256] = {
    0, 2, 5, 8, 10, 17, 20, 32, 34, 40, 42, 65, 68,
    80, 88, 97, 100, 128, 130, 138, 162, 257, 260, 272, 277, 320,
    388, 408, 512, 514, 546, 642, 1025, 1028, 1040, 1057, 1060, 1088, 1090,
    1096, 1120, 1153, 1156, 1168, 1188, 1280, 1282, 1288, 1312, 1350, 1385, 1408,
    1425, 1545, 1552, 1600, 1668, 1700, 2048, 2053, 2056, 2068, 2088, 2113, 2116,
    2128, 2130, 2184, 2308, 2368, 2562, 2580, 4097, 4100, 4112, 4129, 4160, 4192,
    4228, 4240, 4245, 4352, 4360, 4384, 4432, 4442, 4480, 4644, 4677, 5120, 5128,
    5152, 5157, 5193, 5248, 5400, 5474, 5632, 5654, 6145, 6148, 6160, 6208, 6273,
    6400, 6405, 6560, 6737, 8192, 8194, 8202, 8260, 8289, 8320, 8322, 8489, 8520,
    8704, 8706, 9217, 9220, 9232, 9280, 9302, 9472, 9537, 9572, 9872, 10248, 10272,
    10388, 10820, 16385, 16388, 16400, 16408, 16417, 16420, 16448, 16456, 16470, 16480, 16513,
    16516, 16528, 16640, 16672, 16737, 16768, 16773, 16897, 16912, 16968, 16982, 17000, 17408,
    17416, 17440, 17536, 17561, 17682, 17700, 17920, 18433, 18436, 18448, 18496, 18501, 18688,
    18776, 18785, 18818, 19013, 19088, 20480, 20488, 20497, 20505, 20512, 20608, 20616, 20740,
    20802, 20900, 21137, 21648, 21650, 21770, 22017, 22100, 22528, 22545, 22553, 22628, 22848,
    23048, 24580, 24592, 24640, 24680, 24832, 24917, 25112, 25184, 25600, 25605, 25872, 25874,
    25988, 26690, 32768, 32770, 32778, 32833, 32898, 33028, 33048, 33088, 33297, 33793, 33796,
    33808, 33813, 33856, 33888, 34048, 34118, 34196, 34313, 34368, 34400, 34818, 35076, 35345,
    36868, 36880, 36900, 36928, 37025, 37142, 37248, 37445, 37888, 37922, 37956, 38225, 39041,
    39200, 40962, 41040, 41093, 41225, 41472, 42008, 43088, 43268};

/* The 256 points of IQ3_XXS: 4 magnitudes a point, 4 bits each (0..7 for 4, 12, .. 52, 62), the first one lowest. */
static const uint16_t specdec__quant_iq3_xxs_grid[256] = {
    0, 2, 4, 17, 19, 23, 32, 34, 49, 66, 115, 117,
    257, 259, 272, 274, 289, 293, 304, 306, 321, 340, 368, 512,
    514, 516, 529, 544, 546, 561, 563, 567, 593, 599, 629, 769,
    775, 784, 786, 805, 880, 1043, 1079, 1092, 1111, 1139, 1141, 1281,
    1287, 1330, 1362, 1589, 1636, 1808, 1812, 1814, 1859, 1889, 4097, 4099,
    4112, 4114, 4129, 4131, 4144, 4146, 4148, 4167, 4176, 4352, 4354, 4369,
    4384, 4386, 4609, 4611, 4624, 4626, 4641, 4656, 4722, 4864, 4866, 4896,
    4913, 4934, 4966, 5121, 5125, 5200, 5408, 5412, 5446, 5489, 5637, 5922,
    5952, 8192, 8194, 8209, 8211, 8224, 8226, 8230, 8241, 8258, 8449, 8451,
    8453, 8464, 8466, 8481, 8496, 8547, 8551, 8560, 8704, 8706, 8721, 8727,
    8736, 8738, 8759, 8768, 8789, 8961, 8976, 8980, 9072, 9076, 9269, 9299,
    9475, 9511, 9537, 9588, 9985, 9987, 10006, 10053, 12289, 12304, 12306, 12321,
    12323, 12368, 12389, 12402, 12544, 12546, 12576, 12593, 12612, 12614, 12801, 12803,
    12816, 12837, 12882, 12914, 13073, 13107, 13360, 13383, 13426, 13568, 13574, 13602,
    13653, 13844, 13878, 13923, 14131, 14176, 16388, 16407, 16437, 16439, 16467, 16471,
    16756, 16928, 16951, 16960, 16992, 16998, 17159, 17221, 17412, 17489, 17508, 17701,
    17731, 17776, 18181, 18192, 18194, 18224, 20498, 20545, 20592, 20736, 20742, 20774,
    20821, 21012, 21042, 21106, 21250, 21331, 21520, 21539, 21543, 21618, 21762, 21809,
    22096, 22308, 22338, 24612, 24644, 24646, 24676, 24865, 24929, 25111, 25188, 25392,
    25398, 25668, 25861, 25938, 26163, 26371, 26401, 28675, 28677, 28679, 28688, 28722,
    28754, 28966, 28992, 29202, 29253, 29266, 29440, 29461, 29491, 29536, 29729, 29761,
    29952, 29954, 29988, 30256};

/* The 512 points of IQ3_S: 4 magnitudes a point, 4 bits each (0..7 for 1, 3, .. 15), the first one lowest. */
static const uint16_t specdec__quant_iq3_s_grid[512] = {
    0, 1, 2, 5, 7, 16, 17, 18, 20, 22, 32, 33, 37, 51,
    64, 66, 69, 71, 81, 83, 96, 98, 113, 116, 119, 256, 257, 258,
    260, 272, 273, 277, 288, 291, 295, 305, 309, 324, 353, 357, 370, 512,
    513, 517, 519, 528, 531, 534, 545, 549, 560, 564, 578, 581, 583, 593,
    595, 624, 627, 771, 785, 789, 800, 802, 817, 819, 822, 836, 848, 850,
    871, 881, 885, 1024, 1043, 1047, 1057, 1060, 1074, 1088, 1091, 1105, 1136, 1282,
    1284, 1312, 1314, 1318, 1331, 1345, 1349, 1351, 1382, 1395, 1542, 1553, 1555, 1585,
    1618, 1649, 1792, 1794, 1796, 1824, 1826, 1830, 1843, 1872, 1876, 4096, 4097, 4098,
    4100, 4112, 4113, 4115, 4117, 4119, 4128, 4130, 4145, 4148, 4150, 4180, 4182, 4193,
    4210, 4352, 4353, 4355, 4358, 4368, 4372, 4385, 4400, 4403, 4417, 4432, 4434, 4464,
    4470, 4608, 4626, 4629, 4631, 4640, 4644, 4658, 4672, 4675, 4693, 4704, 4722, 4865,
    4868, 4871, 4880, 4883, 4897, 4903, 4912, 4916, 4929, 4962, 4976, 5123, 5125, 5138,
    5140, 5169, 5171, 5186, 5190, 5200, 5204, 5377, 5392, 5395, 5409, 5424, 5426, 5457,
    5664, 5668, 5671, 5700, 5702, 5889, 5891, 5904, 5906, 5921, 5941, 5953, 5986, 6000,
    8192, 8193, 8195, 8197, 8199, 8208, 8210, 8212, 8214, 8225, 8227, 8231, 8240, 8242,
    8257, 8259, 8261, 8272, 8274, 8295, 8304, 8307, 8309, 8448, 8450, 8464, 8467, 8471,
    8482, 8485, 8497, 8500, 8514, 8529, 8705, 8708, 8711, 8737, 8739, 8752, 8759, 8769,
    8787, 8791, 8817, 8820, 8960, 8962, 8965, 8977, 8994, 8996, 9009, 9011, 9026, 9040,
    9062, 9217, 9223, 9248, 9251, 9266, 9269, 9281, 9330, 9333, 9476, 9489, 9506, 9527,
    9536, 9555, 9584, 9728, 9730, 9735, 9761, 9813, 9825, 9989, 10001, 10022, 10032, 10051,
    10064, 12290, 12305, 12307, 12309, 12311, 12322, 12337, 12339, 12341, 12354, 12356, 12359, 12369,
    12387, 12401, 12545, 12547, 12549, 12564, 12577, 12579, 12608, 12640, 12658, 12662, 12800, 12818,
    12832, 12850, 12852, 12880, 13057, 13072, 13076, 13089, 13091, 13095, 13104, 13121, 13123, 13127,
    13141, 13171, 13315, 13329, 13334, 13346, 13361, 13394, 13408, 13412, 13569, 13584, 13586, 13605,
    13618, 13636, 13654, 13683, 13846, 13889, 14081, 14083, 14112, 14114, 14133, 16384, 16388, 16402,
    16416, 16420, 16423, 16434, 16449, 16464, 16496, 16642, 16647, 16657, 16659, 16674, 16688, 16693,
    16707, 16721, 16725, 16897, 16899, 16912, 16917, 16929, 16947, 16960, 16983, 16994, 17008, 17156,
    17169, 17171, 17184, 17186, 17201, 17205, 17408, 17410, 17444, 17463, 17472, 17521, 17669, 17671,
    17697, 17762, 17939, 17972, 18016, 18192, 18197, 18224, 18243, 18257, 20482, 20496, 20500, 20514,
    20544, 20548, 20551, 20562, 20582, 20596, 20737, 20739, 20741, 20754, 20769, 20786, 20850, 20992,
    21009, 21027, 21040, 21046, 21075, 21250, 21255, 21264, 21287, 21316, 21329, 21349, 21363, 21505,
    21508, 21536, 21554, 21574, 21778, 21798, 21841, 21843, 22082, 22274, 22276, 22306, 24593, 24595,
    24597, 24625, 24627, 24672, 24832, 24864, 24871, 24932, 25106, 25140, 25154, 25173, 25186, 25200,
    25344, 25364, 25377, 25408, 25637, 25667, 25698, 25856, 25859, 25908, 25952, 26117, 26176, 26385,
    26387, 28672, 28676, 28679, 28704, 28706, 28726, 28736, 28756, 28770, 28930, 28945, 28964, 28995,
    28997, 29185, 29188, 29200, 29206, 29217, 29232, 29265, 29442, 29490, 29493, 29523, 29697, 29701,
    29715, 29728, 29776, 29986, 30018, 30210, 30257, 30464};

/* The 512 points of IQ2_XS, as those of IQ2_XXS. */
static const uint16_t specdec__quant_iq2_xs_grid[512] = {
    0, 2, 5, 8, 10, 17, 20, 22, 25, 32, 34, 37, 40, 65, 68,
    70, 73, 80, 82, 85, 88, 97, 100, 128, 130, 133, 136, 145, 148, 153,
    160, 257, 260, 262, 265, 272, 274, 277, 280, 282, 289, 292, 320, 322, 325,
    328, 337, 340, 352, 360, 385, 388, 400, 512, 514, 517, 520, 529, 532, 544,
    577, 580, 592, 597, 640, 650, 1025, 1028, 1030, 1033, 1040, 1042, 1045, 1048, 1057,
    1060, 1088, 1090, 1093, 1096, 1105, 1108, 1110, 1120, 1153, 1156, 1168, 1280, 1282, 1285,
    1288, 1297, 1300, 1312, 1345, 1348, 1360, 1377, 1408, 1537, 1540, 1552, 1574, 1600, 1602,
    1668, 2048, 2050, 2053, 2056, 2058, 2065, 2068, 2080, 2085, 2113, 2116, 2128, 2136, 2176,
    2208, 2218, 2305, 2308, 2320, 2368, 2433, 2441, 2560, 2592, 2600, 2710, 2720, 4097, 4100,
    4102, 4105, 4112, 4114, 4117, 4120, 4129, 4132, 4160, 4162, 4165, 4168, 4177, 4180, 4192,
    4202, 4225, 4228, 4240, 4352, 4354, 4357, 4360, 4369, 4372, 4384, 4417, 4420, 4432, 4480,
    4500, 4502, 4609, 4612, 4614, 4624, 4672, 4704, 5120, 5122, 5125, 5128, 5137, 5140, 5152,
    5185, 5188, 5193, 5200, 5220, 5248, 5377, 5380, 5392, 5440, 5632, 5652, 5705, 6145, 6148,
    6160, 6162, 6208, 6228, 6278, 6400, 6405, 6502, 6737, 6825, 8192, 8194, 8197, 8200, 8202,
    8209, 8212, 8224, 8257, 8260, 8272, 8320, 8352, 8449, 8452, 8464, 8512, 8520, 8549, 8704,
    8738, 8832, 8872, 9217, 9220, 9232, 9257, 9280, 9472, 9537, 9554, 9625, 9729, 9754, 9894,
    10240, 10248, 10250, 10272, 10325, 10376, 10402, 10600, 10640, 10760, 10784, 10882, 10888, 10890, 16385,
    16388, 16390, 16393, 16400, 16402, 16405, 16408, 16417, 16420, 16448, 16450, 16453, 16456, 16458, 16465,
    16468, 16480, 16485, 16513, 16516, 16528, 16640, 16642, 16645, 16648, 16657, 16660, 16672, 16705, 16708,
    16720, 16768, 16773, 16802, 16897, 16900, 16912, 16914, 16937, 16960, 17408, 17410, 17413, 17416, 17425,
    17428, 17433, 17440, 17473, 17476, 17488, 17536, 17556, 17665, 17668, 17680, 17700, 17728, 17818, 17920,
    17930, 17988, 18000, 18433, 18436, 18448, 18496, 18501, 18516, 18530, 18688, 18705, 18756, 18768, 18793,
    18948, 20480, 20482, 20485, 20488, 20497, 20500, 20512, 20520, 20545, 20548, 20560, 20608, 20737, 20740,
    20752, 20757, 20800, 20802, 20992, 21060, 21162, 21505, 21508, 21520, 21537, 21568, 21600, 21633, 21665,
    21760, 21768, 21888, 21896, 22049, 22120, 22177, 22528, 22548, 22593, 22608, 22681, 22810, 22848, 22850,
    23173, 24577, 24580, 24592, 24640, 24660, 24674, 24710, 24745, 24832, 25124, 25162, 25234, 25600, 25622,
    25872, 25920, 25925, 26020, 26625, 26730, 26917, 27142, 27220, 27234, 32768, 32770, 32773, 32776, 32785,
    32788, 32800, 32810, 32833, 32836, 32848, 32896, 32898, 32936, 32938, 33025, 33028, 33030, 33040, 33088,
    33105, 33113, 33280, 33312, 33408, 33410, 33440, 33448, 33793, 33796, 33808, 33810, 33813, 33856, 33888,
    33929, 34048, 34116, 34213, 34328, 34410, 34816, 34824, 34853, 34906, 34944, 34946, 34984, 35078, 35362,
    35456, 35464, 35478, 35496, 36865, 36868, 36880, 36928, 36950, 36996, 37120, 37154, 37220, 37462, 37513,
    37888, 37893, 37956, 37968, 37976, 38185, 38288, 38290, 38465, 38993, 39078, 39241, 39445, 39520, 40960,
    40962, 40968, 40970, 40992, 41002, 41120, 41297, 41305, 41382, 41472, 41474, 41480, 41514, 41600, 41632,
    42048, 42133, 42597, 42648, 43018, 43040, 43042, 43048, 43168, 43176, 43268, 43396, 43398, 43560, 43562,
    43665, 43690};

/* The 1024 points of IQ2_S, as those of IQ2_XXS. */
static const uint16_t specdec__quant_iq2_s_grid[1024] = {
    0, 2, 5, 8, 10, 17, 20, 22, 25, 32, 34, 37, 40, 65, 68, 70,
    73, 80, 82, 85, 88, 97, 100, 102, 105, 128, 130, 133, 136, 145, 148, 160,
    165, 170, 257, 260, 262, 265, 272, 274, 277, 280, 289, 292, 320, 322, 325, 328,
    337, 340, 342, 345, 352, 357, 360, 385, 388, 400, 402, 405, 417, 420, 512, 514,
    517, 520, 529, 532, 544, 554, 577, 580, 582, 585, 592, 597, 640, 645, 650, 660,
    674, 1025, 1028, 1030, 1033, 1040, 1042, 1045, 1048, 1057, 1060, 1062, 1065, 1088, 1090, 1093,
    1096, 1098, 1105, 1108, 1110, 1113, 1120, 1122, 1125, 1153, 1156, 1158, 1161, 1168, 1173, 1176,
    1185, 1188, 1280, 1282, 1285, 1288, 1290, 1297, 1300, 1302, 1305, 1312, 1317, 1320, 1345, 1348,
    1350, 1353, 1360, 1362, 1365, 1368, 1377, 1380, 1408, 1410, 1413, 1416, 1425, 1428, 1440, 1537,
    1540, 1542, 1545, 1552, 1557, 1600, 1605, 1608, 1617, 1620, 1632, 1665, 1668, 1680, 2048, 2050,
    2053, 2056, 2065, 2068, 2070, 2073, 2080, 2085, 2090, 2113, 2116, 2118, 2121, 2128, 2130, 2133,
    2136, 2145, 2148, 2176, 2181, 2196, 2218, 2305, 2308, 2320, 2322, 2325, 2328, 2337, 2368, 2373,
    2376, 2385, 2388, 2400, 2433, 2448, 2560, 2577, 2580, 2594, 2600, 2602, 2640, 2713, 4097, 4100,
    4102, 4105, 4112, 4114, 4117, 4120, 4129, 4132, 4134, 4160, 4162, 4165, 4168, 4177, 4180, 4182,
    4185, 4192, 4194, 4197, 4200, 4225, 4228, 4230, 4240, 4245, 4248, 4257, 4260, 4352, 4354, 4357,
    4360, 4362, 4369, 4372, 4374, 4377, 4384, 4386, 4389, 4392, 4417, 4420, 4422, 4425, 4432, 4434,
    4437, 4440, 4449, 4452, 4480, 4482, 4485, 4488, 4497, 4500, 4609, 4612, 4617, 4624, 4629, 4641,
    4644, 4672, 4677, 4689, 4692, 4737, 4740, 4752, 5120, 5122, 5125, 5128, 5137, 5140, 5142, 5145,
    5152, 5157, 5160, 5185, 5188, 5190, 5193, 5200, 5202, 5205, 5208, 5217, 5220, 5248, 5250, 5253,
    5256, 5265, 5268, 5280, 5377, 5380, 5382, 5385, 5392, 5394, 5397, 5400, 5409, 5412, 5440, 5442,
    5445, 5448, 5457, 5460, 5472, 5505, 5508, 5520, 5632, 5637, 5640, 5649, 5652, 5664, 5697, 5700,
    5712, 5760, 5802, 6145, 6148, 6150, 6153, 6160, 6165, 6168, 6177, 6208, 6210, 6213, 6216, 6225,
    6228, 6240, 6273, 6276, 6400, 6402, 6405, 6408, 6417, 6420, 6432, 6465, 6468, 6480, 6505, 6562,
    6660, 6672, 6720, 6742, 8192, 8194, 8197, 8200, 8209, 8212, 8214, 8217, 8224, 8229, 8234, 8257,
    8260, 8272, 8274, 8277, 8292, 8320, 8330, 8340, 8362, 8449, 8452, 8464, 8466, 8469, 8481, 8512,
    8514, 8517, 8529, 8532, 8544, 8577, 8580, 8592, 8704, 8714, 8738, 8744, 8746, 8772, 8784, 8840,
    8842, 8872, 9217, 9220, 9222, 9225, 9232, 9237, 9240, 9249, 9252, 9280, 9282, 9285, 9288, 9297,
    9300, 9312, 9345, 9348, 9360, 9472, 9477, 9480, 9489, 9492, 9504, 9537, 9540, 9552, 9574, 9600,
    9729, 9732, 9744, 9792, 9817, 10240, 10245, 10257, 10260, 10305, 10308, 10320, 10378, 10410, 10497, 10500,
    10512, 10645, 10762, 10786, 10852, 10888, 10890, 16385, 16388, 16390, 16393, 16400, 16402, 16405, 16408, 16410,
    16417, 16420, 16422, 16448, 16450, 16453, 16456, 16458, 16465, 16468, 16470, 16473, 16480, 16482, 16485, 16513,
    16516, 16528, 16533, 16536, 16545, 16548, 16640, 16642, 16645, 16648, 16657, 16660, 16662, 16665, 16672, 16674,
    16677, 16705, 16708, 16710, 16713, 16720, 16722, 16725, 16728, 16737, 16740, 16768, 16770, 16773, 16776, 16785,
    16788, 16800, 16897, 16900, 16912, 16914, 16917, 16920, 16932, 16960, 16965, 16968, 16977, 16980, 16992, 17025,
    17028, 17408, 17410, 17413, 17416, 17418, 17425, 17428, 17430, 17433, 17440, 17442, 17445, 17448, 17473, 17476,
    17478, 17481, 17488, 17490, 17493, 17496, 17505, 17508, 17536, 17538, 17541, 17544, 17553, 17556, 17568, 17665,
    17668, 17670, 17673, 17680, 17682, 17685, 17688, 17697, 17700, 17728, 17730, 17733, 17736, 17745, 17748, 17760,
    17770, 17793, 17796, 17808, 17920, 17922, 17925, 17928, 17937, 17940, 17952, 17985, 17988, 18000, 18048, 18085,
    18433, 18436, 18441, 18448, 18450, 18453, 18456, 18465, 18468, 18496, 18498, 18501, 18504, 18513, 18516, 18528,
    18564, 18576, 18688, 18690, 18693, 18696, 18705, 18708, 18720, 18753, 18756, 18768, 18816, 18838, 18945, 18948,
    18960, 19008, 20480, 20482, 20485, 20488, 20497, 20500, 20502, 20505, 20512, 20514, 20517, 20520, 20545, 20548,
    20550, 20553, 20560, 20562, 20565, 20568, 20577, 20580, 20608, 20610, 20613, 20616, 20625, 20628, 20737, 20740,
    20742, 20745, 20752, 20754, 20757, 20760, 20769, 20772, 20800, 20802, 20805, 20808, 20817, 20820, 20832, 20865,
    20868, 20880, 20992, 20997, 21000, 21009, 21012, 21024, 21057, 21060, 21072, 21097, 21120, 21505, 21508, 21510,
    21513, 21520, 21522, 21525, 21528, 21537, 21540, 21568, 21570, 21573, 21576, 21585, 21588, 21600, 21633, 21636,
    21648, 21760, 21762, 21765, 21768, 21777, 21780, 21792, 21825, 21828, 21840, 21888, 22017, 22020, 22032, 22054,
    22080, 22528, 22530, 22533, 22536, 22545, 22548, 22560, 22593, 22596, 22608, 22618, 22656, 22785, 22788, 22800,
    22848, 23040, 23065, 23173, 23208, 24577, 24580, 24582, 24592, 24594, 24597, 24600, 24609, 24612, 24640, 24645,
    24648, 24657, 24660, 24672, 24708, 24720, 24832, 24834, 24837, 24840, 24849, 24852, 24864, 24897, 24900, 24912,
    24960, 24985, 25092, 25104, 25152, 25174, 25249, 25600, 25605, 25608, 25617, 25620, 25632, 25665, 25668, 25680,
    25728, 25857, 25860, 25872, 25920, 25930, 25960, 26002, 26112, 26260, 26625, 26628, 26640, 26725, 26776, 26880,
    26922, 27202, 27297, 32768, 32770, 32773, 32776, 32785, 32788, 32793, 32800, 32805, 32833, 32836, 32848, 32850,
    32853, 32856, 32865, 32896, 32901, 32913, 32916, 33025, 33028, 33033, 33040, 33042, 33045, 33048, 33057, 33060,
    33088, 33090, 33093, 33096, 33105, 33108, 33153, 33156, 33168, 33193, 33280, 33285, 33290, 33297, 33300, 33345,
    33348, 33360, 33793, 33796, 33798, 33801, 33808, 33810, 33813, 33816, 33825, 33856, 33858, 33861, 33864, 33873,
    33876, 33888, 33921, 33924, 33936, 34048, 34050, 34053, 34056, 34065, 34068, 34080, 34113, 34116, 34128, 34176,
    34186, 34305, 34308, 34320, 34345, 34368, 34816, 34821, 34833, 34836, 34881, 34884, 34896, 34978, 35073, 35076,
    35136, 35173, 35362, 35416, 35418, 35458, 35490, 36865, 36868, 36873, 36880, 36882, 36885, 36888, 36900, 36928,
    36930, 36933, 36936, 36945, 36948, 36960, 36993, 36996, 37008, 37120, 37125, 37137, 37140, 37185, 37188, 37200,
    37210, 37377, 37380, 37392, 37440, 37542, 37888, 37890, 37893, 37896, 37905, 37908, 37920, 37953, 37956, 37968,
    38016, 38038, 38145, 38148, 38160, 38208, 38296, 38305, 38400, 38470, 38500, 38913, 38916, 38928, 38950, 38976,
    39081, 39168, 39241, 39250, 39568, 40960, 40965, 40970, 40980, 40994, 41002, 41025, 41028, 41040, 41122, 41130,
    41280, 41317, 41474, 41482, 41506, 41512, 41514, 41602, 41608, 41610, 41640, 41985, 41988, 42000, 42048, 42121,
    42148, 42240, 42265, 42577, 43018, 43048, 43170, 43348, 43398, 43528, 43530, 43552, 43554, 43560, 43656, 43690};

/* 32 nibbles from 16 bytes: the low ones first; code = nibble + offset. */
SPECDEC__INLINE void specdec__quant_nibbles(const unsigned char *packed, int offset, int8_t *codes)
{
    int i;

    for (i = 0; i < 16; i++) {
        codes[i] = (int8_t)((packed[i] & 15) + offset);
        codes[i + 16] = (int8_t)((packed[i] >> 4) + offset);
    }
}

/* Q4_0: d f16, 16 bytes of nibbles. */
static void specdec__quant_decode_q4_0(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q4_0 *from = (const specdec__block_q4_0 *)(const void *)block;

    (void)minimum;
    scale[0] = specdec__load_f16(from->d);
    specdec__quant_nibbles(from->nibbles, -8, codes);
}

/* Q4_1: d f16, m f16, 16 bytes of nibbles. */
static void specdec__quant_decode_q4_1(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q4_1 *from = (const specdec__block_q4_1 *)(const void *)block;

    scale[0] = specdec__load_f16(from->d);
    minimum[0] = specdec__load_f16(from->minimum);
    specdec__quant_nibbles(from->nibbles, 0, codes);
}

/* Q5_0: d f16, 32 high bits, 16 bytes of nibbles. */
static void specdec__quant_decode_q5_0(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q5_0 *from = (const specdec__block_q5_0 *)(const void *)block;
    uint32_t high = specdec__load_u32(from->high);
    int i;

    (void)minimum;
    scale[0] = specdec__load_f16(from->d);
    specdec__quant_nibbles(from->nibbles, -16, codes);
    for (i = 0; i < 32; i++)
        codes[i] = (int8_t)(codes[i] + (int)((high >> i) & 1) * 16);
}

/* Q5_1: d f16, m f16, 32 high bits, 16 bytes of nibbles. */
static void specdec__quant_decode_q5_1(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q5_1 *from = (const specdec__block_q5_1 *)(const void *)block;
    uint32_t high = specdec__load_u32(from->high);
    int i;

    scale[0] = specdec__load_f16(from->d);
    minimum[0] = specdec__load_f16(from->minimum);
    specdec__quant_nibbles(from->nibbles, 0, codes);
    for (i = 0; i < 32; i++)
        codes[i] = (int8_t)(codes[i] + (int)((high >> i) & 1) * 16);
}

/* Q8_0: d f16, 32 signed bytes. */
static void specdec__quant_decode_q8_0(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q8_0 *from = (const specdec__block_q8_0 *)(const void *)block;

    (void)minimum;
    scale[0] = specdec__load_f16(from->d);
    memcpy(codes, from->codes, 32);
}

/* Two bits of element i (0..255) from 64 bytes, as Q2_K, Q3_K and Q6_K store them: byte 32*(i/128) + i%32, bits 2*(i/32
   % 4). */
SPECDEC__INLINE int specdec__quant_crumb(const unsigned char *packed, int i)
{
    return packed[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

/* Q2_K: 16 bytes of (scale, minimum) nibbles, 64 bytes of 2-bit codes, d f16, dmin f16. */
static void specdec__quant_decode_q2_k(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q2_k *from = (const specdec__block_q2_k *)(const void *)block;
    float d = specdec__load_f16(from->d), dmin = specdec__load_f16(from->dmin);
    int i;

    for (i = 0; i < 256; i++)
        codes[i] = (int8_t)specdec__quant_crumb(from->crumbs, i);
    for (i = 0; i < 16; i++) {
        scale[i] = d * (float)(from->scales[i] & 15);
        minimum[i] = -(dmin * (float)(from->scales[i] >> 4));
    }
}

/* Q3_K: 32 bytes of high bits, 64 bytes of low bits, 12 bytes of 6-bit scales (minus 32), d f16. */
static void specdec__quant_decode_q3_k(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q3_k *from = (const specdec__block_q3_k *)(const void *)block;
    const unsigned char *packed = from->scales;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 256; i++)
        codes[i] = (int8_t)(specdec__quant_crumb(from->crumbs, i) + (from->high[i % 32] >> (i / 32) & 1) * 4 - 4);
    for (i = 0; i < 16; i++) {
        int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
        int high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        scale[i] = d * (float)(low + high * 16 - 32);
    }
}

/* Scale and minimum (6 bits each) of group i (0..7) from the 12 bytes of Q4_K and Q5_K. */
SPECDEC__INLINE void specdec__quant_scales_k(const unsigned char *packed, int i, int *scale, int *minimum)
{
    if (i < 4) {
        *scale = packed[i] & 63;
        *minimum = packed[i + 4] & 63;
    } else {
        *scale = (packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4;
        *minimum = packed[i + 4] >> 4 | (packed[i] >> 6) << 4;
    }
}

/* Q4_K: d f16, dmin f16, 12 bytes of scales and minimums, 128 bytes of nibbles. */
static void specdec__quant_decode_q4_k(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q4_k *from = (const specdec__block_q4_k *)(const void *)block;
    float d = specdec__load_f16(from->d), dmin = specdec__load_f16(from->dmin);
    int i, s, m;

    for (i = 0; i < 8; i++) {
        specdec__quant_scales_k(from->scales, i, &s, &m);
        scale[i] = d * (float)s;
        minimum[i] = -(dmin * (float)m);
    }
    for (i = 0; i < 256; i++)
        codes[i] = (int8_t)(from->nibbles[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15);
}

/* Q5_K: d f16, dmin f16, 12 bytes of scales and minimums, 32 bytes of high bits, 128 bytes of nibbles. */
static void specdec__quant_decode_q5_k(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q5_k *from = (const specdec__block_q5_k *)(const void *)block;
    float d = specdec__load_f16(from->d), dmin = specdec__load_f16(from->dmin);
    int i, s, m;

    for (i = 0; i < 8; i++) {
        specdec__quant_scales_k(from->scales, i, &s, &m);
        scale[i] = d * (float)s;
        minimum[i] = -(dmin * (float)m);
    }
    for (i = 0; i < 256; i++) {
        int low = from->nibbles[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        codes[i] = (int8_t)(low + (from->high[i % 32] >> (i / 32) & 1) * 16);
    }
}

/* Q6_K: 128 bytes of nibbles, 64 bytes of 2 high bits, 16 signed scales, d f16. */
static void specdec__quant_decode_q6_k(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q6_k *from = (const specdec__block_q6_k *)(const void *)block;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 256; i++) {
        int low = from->nibbles[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
        codes[i] = (int8_t)(low + specdec__quant_crumb(from->crumbs, i) * 16 - 32);
    }
    for (i = 0; i < 16; i++)
        scale[i] = d * (float)(int8_t)from->scales[i];
}

/* IQ4_NL: d f16, 16 bytes of nibbles that index the table. */
static void specdec__quant_decode_iq4_nl(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq4_nl *from = (const specdec__block_iq4_nl *)(const void *)block;
    int i;

    (void)minimum;
    scale[0] = specdec__load_f16(from->d);
    specdec__quant_nibbles(from->nibbles, 0, codes);
    for (i = 0; i < 32; i++)
        codes[i] = specdec__quant_iq4_values[codes[i]];
}

/* IQ4_XS: d f16, 2 high bits of 8 scales, their 4 low bits, 128 bytes of nibbles that index the table. */
static void specdec__quant_decode_iq4_xs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq4_xs *from = (const specdec__block_iq4_xs *)(const void *)block;
    float d = specdec__load_f16(from->d);
    unsigned high = specdec__load_u16(from->high);
    int i;

    (void)minimum;
    for (i = 0; i < 8; i++) {
        int low = from->low[i / 2] >> (i % 2 * 4) & 15;
        scale[i] = d * (float)(low + (int)(high >> (2 * i) & 3) * 16 - 32);
        specdec__quant_nibbles(from->nibbles[i], 0, codes + 32 * i);
    }
    for (i = 0; i < 256; i++)
        codes[i] = specdec__quant_iq4_values[codes[i]];
}

/* Eight sign bits from seven: the eighth makes the number of set bits even. */
SPECDEC__INLINE uint32_t specdec__quant_even_signs(uint32_t seven)
{
    uint32_t parity = seven ^ seven >> 4;

    parity ^= parity >> 2;
    return seven | ((parity ^ parity >> 1) & 1) << 7;
}

/* Eight magnitudes (0..127), one a byte, to codes. Where bit k of signs is set, code k is negative; bit 0 is the
   lowest. */
SPECDEC__INLINE void specdec__quant_put_eight(uint64_t magnitudes, uint64_t signs, int8_t *codes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);

    signs = signs * ones & UINT64_C(0x8040201008040201);
    signs = (signs + ones * 127) >> 7 & ones;
    magnitudes = (magnitudes ^ signs * 255) + signs;
    specdec__store_u32(codes, (uint32_t)magnitudes);
    specdec__store_u32(codes + 4, (uint32_t)(magnitudes >> 32));
}

/* The 8 magnitudes of a point of an IQ2 grid, one a byte: 2 bits m stand for 8, 25, 43 (8 + 17 * m + m / 2). */
SPECDEC__INLINE uint64_t specdec__quant_iq2_point(uint64_t point)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);

    point = (point | point << 24) & UINT64_C(0x000000FF000000FF);
    point = (point | point << 12) & UINT64_C(0x000F000F000F000F);
    point = (point | point << 6) & (ones * 3);
    return point * 17 + (point >> 1 & ones) + ones * 8;
}

/* IQ2_XXS: d f16, then for each of 8 groups 4 bytes that index the grid and a word of four 7-bit signs and a 4-bit
   scale on top. */
static void specdec__quant_decode_iq2_xxs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq2_xxs *from = (const specdec__block_iq2_xxs *)(const void *)block;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        const unsigned char *group = from->groups[i / 4];
        uint32_t word = specdec__load_u32(group + 4);

        specdec__quant_put_eight(specdec__quant_iq2_point(specdec__quant_iq2_xxs_grid[group[i % 4]]),
                                 specdec__quant_even_signs(word >> (i % 4 * 7) & 127), codes + 8 * i);
        if (i % 4 == 0)
            scale[i / 4] = d * (0.125f * (float)(2 * (word >> 28) + 1));
    }
}

/* The magnitudes (0..7) of two points of an IQ3 grid, one a byte. */
SPECDEC__INLINE uint64_t specdec__quant_iq3_points(uint64_t first, uint64_t second)
{
    uint64_t points = first | second << 32;

    points = (points | points << 8) & UINT64_C(0x00FF00FF00FF00FF);
    return (points | points << 4) & UINT64_C(0x0F0F0F0F0F0F0F0F);
}

/* IQ3_XXS: d f16, 64 bytes that index the grid, for each of 8 groups a word of four 7-bit signs and a 4-bit scale on
   top. Magnitude m stands for 8 * m + 4, the highest for two more. */
static void specdec__quant_decode_iq3_xxs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq3_xxs *from = (const specdec__block_iq3_xxs *)(const void *)block;
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint16_t *grid = specdec__quant_iq3_xxs_grid;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        const unsigned char *index = from->index + 2 * i;
        uint32_t word = specdec__load_u32(from->words[i / 4]);
        uint64_t points = specdec__quant_iq3_points(grid[index[0]], grid[index[1]]);

        points = points * 8 + ones * 4 + ((points + ones) >> 3 & ones) * 2;
        specdec__quant_put_eight(points, specdec__quant_even_signs(word >> (i % 4 * 7) & 127), codes + 8 * i);
        if (i % 4 == 0)
            scale[i / 4] = d * (0.25f * (float)(2 * (word >> 28) + 1));
    }
}

/* IQ3_S: d f16, 64 low bytes of indices of the grid, their 64 ninth bits, 32 bytes of signs, 8 nibbles of scales.
   Magnitude m stands for 2 * m + 1. */
static void specdec__quant_decode_iq3_s(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq3_s *from = (const specdec__block_iq3_s *)(const void *)block;
    const uint16_t *grid = specdec__quant_iq3_s_grid;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        int ninths = from->high[i / 4] >> (i % 4 * 2);
        int first = from->index[2 * i] | (ninths & 1) << 8, second = from->index[2 * i + 1] | (ninths & 2) << 7;
        uint64_t points = specdec__quant_iq3_points(grid[first], grid[second]);

        specdec__quant_put_eight(points * 2 + UINT64_C(0x0101010101010101), from->signs[i], codes + 8 * i);
    }
    for (i = 0; i < 8; i++)
        scale[i] = d * (float)(2 * (from->scales[i / 2] >> (i % 2 * 4) & 15) + 1);
}

/* IQ2_XS: d f16, 32 words of a 9-bit index of the grid and 7 signs, 16 nibbles of scales. */
static void specdec__quant_decode_iq2_xs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq2_xs *from = (const specdec__block_iq2_xs *)(const void *)block;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        uint32_t word = specdec__load_u16(from->words[i]);

        specdec__quant_put_eight(specdec__quant_iq2_point(specdec__quant_iq2_xs_grid[word & 511]),
                                 specdec__quant_even_signs(word >> 9), codes + 8 * i);
    }
    for (i = 0; i < 16; i++)
        scale[i] = d * (0.125f * (float)(2 * (from->scales[i / 2] >> (i % 2 * 4) & 15) + 1));
}

/* IQ2_S: d f16, 32 low bytes of indices of the grid, 32 bytes of signs, 32 pairs of bits on top of the indices, 16
   nibbles of scales. */
static void specdec__quant_decode_iq2_s(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq2_s *from = (const specdec__block_iq2_s *)(const void *)block;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        int point = from->index[i] | (from->high[i / 4] >> (i % 4 * 2) & 3) << 8;

        specdec__quant_put_eight(specdec__quant_iq2_point(specdec__quant_iq2_s_grid[point]), from->signs[i],
                                 codes + 8 * i);
    }
    for (i = 0; i < 16; i++)
        scale[i] = d * (0.125f * (float)(2 * (from->scales[i / 2] >> (i % 2 * 4) & 15) + 1));
}

/* Encoders. Two compilers must write the same file, fused multiply-add or not: every product that is added to something
   is exact in double (float times float, or a small integer), or comes from specdec__product. */

/* The integer nearest to value (to the even one at a tie) in [low, high], both below 2^50; low for a NaN. */
SPECDEC__INLINE double specdec__quant_nearest(double value, double low, double high)
{
    value = value > low ? value : low;
    value = value < high ? value : high;
    return (value + 6755399441055744.0) - 6755399441055744.0;
}

/* The same as an int. */
SPECDEC__INLINE int specdec__quant_round(double value, int low, int high)
{
    return (int)specdec__quant_nearest(value, (double)low, (double)high);
}

/* 1 / value; 0 for 0. */
SPECDEC__INLINE double specdec__quant_inverse(double value) { return value != 0 ? 1 / value : 0; }

/* The same value twice. */
SPECDEC__INLINE specdec__pair specdec__quant_both(double value)
{
    specdec__pair pair = {value, value};
    return pair;
}

/* specdec__quant_nearest of both, plus SPECDEC__QUANT_MAGIC: the low bits of the sums are those of the integers. */
#define SPECDEC__QUANT_MAGIC specdec__quant_both(6755399441055744.0)
SPECDEC__INLINE specdec__pair specdec__quant_nearest_pair(specdec__pair value, specdec__pair low,
                                                                specdec__pair high)
{
    value = SPECDEC__LARGER_PAIR(value, low);
    return SPECDEC__SMALLER_PAIR(value, high) + SPECDEC__QUANT_MAGIC;
}

/* The codes in [low, high] nearest to value * inverse, 2 * pairs of them, as signed bytes. */
SPECDEC__INLINE void specdec__quant_codes(int pairs, double low, double high, double inverse,
                                          const specdec__pair *values, unsigned char *codes)
{
    specdec__pair lowest = specdec__quant_both(low), highest = specdec__quant_both(high);
    uint64_t bits[32];
    int i;

    for (i = 0; i < pairs; i++) {
        specdec__pair sums = specdec__quant_nearest_pair(values[i] * inverse, lowest, highest);
        memcpy(bits + 2 * i, &sums, sizeof sums);
    }
    for (i = 0; i < 2 * pairs; i++)
        codes[i] = (unsigned char)bits[i];
}

/* 2 * pairs floats. */
SPECDEC__INLINE void specdec__quant_widen(int pairs, const float *values, specdec__pair *wide)
{
    int i;

    for (i = 0; i < pairs; i++) {
        specdec__pair pair = {(double)values[2 * i], (double)values[2 * i + 1]};
        wide[i] = pair;
    }
}

/* The smallest of 0 and the values, and the largest of the values. count is a multiple of 8; NaNs do not count. */
SPECDEC__INLINE void specdec__quant_extent(int count, const float *values, float *low, float *high)
{
    float lows[8], highs[8];
    int i, k;

    for (k = 0; k < 8; k++) {
        lows[k] = 0;
        highs[k] = specdec__float_from_bits(0xFF800000u);
    }
    for (i = 0; i < count; i += 8)
        for (k = 0; k < 8; k++) {
            lows[k] = values[i + k] < lows[k] ? values[i + k] : lows[k];
            highs[k] = values[i + k] > highs[k] ? values[i + k] : highs[k];
        }
    for (k = 1; k < 8; k++) {
        lows[0] = lows[k] < lows[0] ? lows[k] : lows[0];
        highs[0] = highs[k] > highs[0] ? highs[k] : highs[0];
    }
    *low = lows[0];
    *high = highs[0];
}

/* The value of largest magnitude, with its sign; of equal ones the first. count is a multiple of 8; NaNs do not count.
   */
SPECDEC__INLINE float specdec__quant_peak(int count, const float *values)
{
    float low, high;
    int i;

    specdec__quant_extent(count, values, &low, &high);
    if (!(high >= -low) || high == 0)
        return low;
    for (i = 0; high == -low && values[i] != low && values[i] != high; i++) {
    }
    return high == -low ? values[i] : high;
}

/* Q8_0: the scale is the largest magnitude over 127. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_encode_q8_0(const float *values, unsigned char *block)
{
    specdec__block_q8_0 *to = (specdec__block_q8_0 *)(void *)block;
    float peak = specdec__quant_peak(32, values);
    uint16_t d = specdec__f16_from_float((peak < 0 ? -peak : peak) / 127);
    specdec__pair wide[16];

    specdec__store_u16(to->d, d);
    specdec__quant_widen(16, values, wide);
    specdec__quant_codes(16, -127, 127, specdec__quant_inverse(specdec__float_from_f16(d)), wide, to->codes);
}

/* Sums over a group that a least squares fit of values by codes needs: of weight * code * value, of weight * code^2 and
   of weight * code. Even and odd elements are added apart, then together. */
typedef struct specdec__quant_sums {
    specdec__pair code_value, code_code, code;
} specdec__quant_sums;

/* Adds one pair of elements to the sums. weight: NULL for 1; weighted = weight * value. */
SPECDEC__INLINE void specdec__quant_add(specdec__quant_sums *sums, specdec__pair code,
                                        const specdec__pair *weight, specdec__pair weighted)
{
    specdec__pair weight_code = weight ? *weight * code : code;

    sums->code_value += weighted * code;
    sums->code_code += weight_code * code;
    sums->code += weight_code;
}

#define SPECDEC__QUANT_TRIES 12 /* at most; a multiple of 4 */

/* The sums of every try. */
typedef struct specdec__quant_trial {
    double code_value[SPECDEC__QUANT_TRIES], code_code[SPECDEC__QUANT_TRIES], code[SPECDEC__QUANT_TRIES];
} specdec__quant_trial;

/* Notes the sums of try t. */
SPECDEC__INLINE void specdec__quant_note(specdec__quant_trial *trial, int t, const specdec__quant_sums *sums)
{
    trial->code_value[t] = sums->code_value[0] + sums->code_value[1];
    trial->code_code[t] = sums->code_code[0] + sums->code_code[1];
    trial->code[t] = sums->code[0] + sums->code[1];
}

/* The sums for the codes in [low, high] nearest to value * inverse, for so many inverses (tries, even). Two tries at a
   time: one alone would leave the processor waiting for its sums. */
SPECDEC__INLINE void specdec__quant_try_two(int pairs, const specdec__pair *value,
                                            const specdec__pair *weight, const specdec__pair *weighted,
                                            double low, double high, int tries, const double *inverse,
                                            specdec__quant_trial *trial)
{
    specdec__pair lowest = specdec__quant_both(low), highest = specdec__quant_both(high);
    int i, t;

    for (t = 0; t < tries; t += 2) {
        specdec__quant_sums first = {{0, 0}, {0, 0}, {0, 0}}, second = first;

        for (i = 0; i < pairs; i++) {
            specdec__pair a = specdec__quant_nearest_pair(value[i] * inverse[t], lowest, highest);
            specdec__pair b = specdec__quant_nearest_pair(value[i] * inverse[t + 1], lowest, highest);

            specdec__quant_add(&first, a - SPECDEC__QUANT_MAGIC, weight ? weight + i : NULL, weighted[i]);
            specdec__quant_add(&second, b - SPECDEC__QUANT_MAGIC, weight ? weight + i : NULL, weighted[i]);
        }
        specdec__quant_note(trial, t, &first);
        specdec__quant_note(trial, t + 1, &second);
    }
}

/* Encoders spend most of their time on these sums. Where there are kernels for AVX2, >>kernel computes them with AVX2,
   too. */
#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC__QUANT_WIDE)
#define SPECDEC__QUANT_WIDE
#endif
#ifdef SPECDEC__QUANT_WIDE
static void specdec__quant_try(int pairs, const specdec__pair *value, const specdec__pair *weight,
                               const specdec__pair *weighted, double low, double high, int tries,
                               const double *inverse, specdec__quant_trial *trial);
#else
#define specdec__quant_try specdec__quant_try_two
#endif

/* Encoders try several scales. Each is the one that gives the value of largest magnitude one of these codes, before
   rounding; most lie near either end of the range. With 5.1 and 3, for Q4_0, values that were IQ2_XXS before (8, 25, 43
   times a scale) fall almost on whole codes. */
static const float specdec__quant_peaks_q4_0[] = {-8.8f, -8.4f, -8, -7.6f, -7.2f, 6.2f, 6.6f, 7, 7.4f, 7.8f, 5.1f, 3};
static const float specdec__quant_peaks_q6_k[] = {-32.8f, -32.4f, -32, -31.6f, -31.2f, 30.2f, 30.6f, 31, 31.4f, 31.8f};

/* Scale s that minimises sum of weight * (value - s * code)^2 over codes in [low, high], the best of several tries.
   peaks (tries): the codes that are tried for peak, the value of largest magnitude. 0 when all values are 0. */
SPECDEC__INLINE float specdec__quant_fit_scale(int pairs, const specdec__pair *value,
                                               const specdec__pair *weight, const specdec__pair *weighted,
                                               double low, double high, const float *peaks, int tries, float peak)
{
    double best = 0, scale = 0, unit = specdec__quant_inverse(peak);
    double inverse[SPECDEC__QUANT_TRIES], gain[SPECDEC__QUANT_TRIES];
    specdec__quant_trial s;
    int t;

    if (!(peak - peak == 0))
        return peak;
    for (t = 0; t < SPECDEC__QUANT_TRIES; t++)
        inverse[t] = t < tries ? (double)peaks[t] * unit : 0;
    specdec__quant_try(pairs, value, weight, weighted, low, high, tries, inverse, &s);
    for (t = 0; t < tries; t++)
        gain[t] = s.code_value[t] * s.code_value[t] / s.code_code[t];
    for (t = 0; t < tries; t++) /* a NaN, from 0 / 0, is no gain */
        if (gain[t] > best) {
            best = gain[t];
            scale = s.code_value[t] / s.code_code[t];
        }
    return (float)scale;
}

/* Q4_0: the best scale of those tried. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_encode_q4_0(const float *values, unsigned char *block)
{
    specdec__block_q4_0 *to = (specdec__block_q4_0 *)(void *)block;
    specdec__pair wide[16];
    unsigned char codes[32];
    float scale;
    int i;

    specdec__quant_widen(16, values, wide);
    scale = specdec__quant_fit_scale(16, wide, NULL, wide, -8, 7, specdec__quant_peaks_q4_0, 12,
                                     specdec__quant_peak(32, values));
    specdec__store_u16(to->d, specdec__f16_from_float(scale));
    specdec__quant_codes(16, -8, 7, specdec__quant_inverse(specdec__load_f16(to->d)), wide, codes);
    for (i = 0; i < 16; i++)
        to->nibbles[i] = (unsigned char)((codes[i] + 8) | (codes[i + 16] + 8) << 4);
}

/* The scale of a group of Q6_K (16 values). Weights are squared values: large values must be met best. */
SPECDEC__VECTORISE static float specdec__quant_fit_q6_k(const float *values)
{
    specdec__pair value[8], weight[8], weighted[8];
    float squares[16];
    int i;

    for (i = 0; i < 16; i++)
        squares[i] = values[i] * values[i];
    specdec__quant_widen(8, values, value);
    specdec__quant_widen(8, squares, weight);
    for (i = 0; i < 8; i++)
        weighted[i] = weight[i] * value[i];
    return specdec__quant_fit_scale(8, value, weight, weighted, -32, 31, specdec__quant_peaks_q6_k, 10,
                                    specdec__quant_peak(16, values));
}

/* Q6_K: the best scale of every group, then the largest of them over 128 as the scale of the block. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_encode_q6_k(const float *values, unsigned char *block)
{
    specdec__block_q6_k *to = (specdec__block_q6_k *)(void *)block;
    float scales[16], d;
    specdec__pair wide[8];
    unsigned char codes[256];
    int i, g;

    for (g = 0; g < 16; g++)
        scales[g] = specdec__quant_fit_q6_k(values + 16 * g);
    specdec__store_u16(to->d, specdec__f16_from_float(specdec__quant_peak(16, scales) / -128));
    d = specdec__load_f16(to->d);
    for (g = 0; g < 16; g++) {
        int scale = specdec__quant_round((double)scales[g] * specdec__quant_inverse(d), -128, 127);

        to->scales[g] = (unsigned char)scale;
        specdec__quant_widen(8, values + 16 * g, wide);
        specdec__quant_codes(8, -32, 31, specdec__quant_inverse((double)d * (double)scale), wide, codes + 16 * g);
    }
    for (i = 0; i < 256; i++)
        codes[i] = (unsigned char)(codes[i] + 32);
    for (i = 0; i < 128; i++)
        to->nibbles[i] = (unsigned char)((codes[i / 64 * 128 + i % 64] & 15) | codes[i / 64 * 128 + 64 + i % 64] << 4);
    for (i = 0; i < 64; i++) {
        const unsigned char *from = codes + i / 32 * 128 + i % 32;
        to->crumbs[i] = (unsigned char)(from[0] >> 4 | from[32] >> 4 << 2 | from[64] >> 4 << 4 | from[96] >> 4 << 6);
    }
}

/* Scale s and minimum m, both >= 0, that minimise sum of weight * (value - (s * code - m))^2 over 32 values with codes
   0..15. Weights are |value| plus 1.25 times their mean. */
SPECDEC__VECTORISE static void specdec__quant_fit_affine(const float *values, float *scale_out, float *minimum_out)
{
    float low, high, above[32], weights[32];
    double base = 0, sum = 0, value_sum = 0, best = -1, inverse[SPECDEC__QUANT_TRIES];
    specdec__pair value[16], weight[16], weighted[16];
    specdec__quant_trial s;
    int i, t;

    specdec__quant_extent(32, values, &low, &high);
    for (i = 0; i < 32; i++)
        base += (double)(values[i] < 0 ? -values[i] : values[i]);
    base = specdec__product(base, 1.25 / 32);
    *scale_out = 0;
    *minimum_out = -low;
    if (!(high > low) || !(base - base == 0))
        return;
    for (i = 0; i < 32; i++) {
        weights[i] = (float)(base + (double)(values[i] < 0 ? -values[i] : values[i]));
        above[i] = values[i] - low;
        sum += (double)weights[i];
        value_sum += (double)weights[i] * (double)values[i];
    }
    specdec__quant_widen(16, values, weighted);
    specdec__quant_widen(16, weights, weight);
    specdec__quant_widen(16, above, value);
    for (i = 0; i < 16; i++)
        weighted[i] *= weight[i];
    for (t = 0; t < 12; t++) /* 14 to 16, which comes twice */
        inverse[t] = (double)(140 + 2 * specdec__min_int(t, 10)) / 10 / ((double)high - (double)low);
    specdec__quant_try(16, value, weight, weighted, 0, 15, 12, inverse, &s);
    for (t = 0; t < 12; t++) {
        double all = specdec__product(sum, s.code_code[t]), rest = all - specdec__product(s.code[t], s.code[t]);
        double scale = 0, minimum = -1, gain;

        if (rest > 1e-9 * all) {
            scale = (specdec__product(sum, s.code_value[t]) - specdec__product(value_sum, s.code[t])) / rest;
            minimum = (specdec__product(scale, s.code[t]) - value_sum) / sum;
        }
        if (minimum < 0 && s.code_code[t] > 0) {
            minimum = 0;
            scale = s.code_value[t] / s.code_code[t];
        }
        gain = specdec__product(scale, s.code_value[t]) - specdec__product(minimum, value_sum);
        if (gain > best && scale > 0 && minimum >= 0) {
            best = gain;
            *scale_out = (float)scale;
            *minimum_out = (float)minimum;
        }
    }
}

/* Packs eight 6-bit scales and minimums into the 12 bytes of Q4_K. */
static void specdec__quant_pack_scales_k(const int *scales, const int *minimums, unsigned char *packed)
{
    int i;

    for (i = 0; i < 4; i++) {
        packed[i] = (unsigned char)(scales[i] | (scales[i + 4] >> 4) << 6);
        packed[i + 4] = (unsigned char)(minimums[i] | (minimums[i + 4] >> 4) << 6);
        packed[i + 8] = (unsigned char)((scales[i + 4] & 15) | (minimums[i + 4] & 15) << 4);
    }
}

/* Q4_K: the best scale and minimum of every group, rounded to 6 bits. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_encode_q4_k(const float *values, unsigned char *block)
{
    specdec__block_q4_k *to = (specdec__block_q4_k *)(void *)block;
    float scales[8], minimums[8], d, dmin;
    specdec__pair above[16];
    unsigned char codes[256];
    int i, g, scale[8], minimum[8];

    for (g = 0; g < 8; g++)
        specdec__quant_fit_affine(values + 32 * g, &scales[g], &minimums[g]);
    specdec__store_u16(to->d, specdec__f16_from_float(specdec__quant_peak(8, scales) / 63));
    specdec__store_u16(to->dmin, specdec__f16_from_float(specdec__quant_peak(8, minimums) / 63));
    d = specdec__load_f16(to->d);
    dmin = specdec__load_f16(to->dmin);
    for (g = 0; g < 8; g++) {
        scale[g] = specdec__quant_round((double)scales[g] * specdec__quant_inverse(d), 0, 63);
        minimum[g] = specdec__quant_round((double)minimums[g] * specdec__quant_inverse(dmin), 0, 63);
        specdec__quant_widen(16, values + 32 * g, above);
        for (i = 0; i < 16; i++)
            above[i] += (double)dmin * (double)minimum[g];
        specdec__quant_codes(16, 0, 15, specdec__quant_inverse((double)d * (double)scale[g]), above, codes + 32 * g);
    }
    specdec__quant_pack_scales_k(scale, minimum, to->scales);
    for (i = 0; i < 128; i++)
        to->nibbles[i] = (unsigned char)(codes[i / 32 * 64 + i % 32] | codes[i / 32 * 64 + 32 + i % 32] << 4);
}

#define SPECDEC__QUANT_ROW(number, name, block, bytes, granule, bits, has_minimum, decode, ...) \
    {number, #name, block, bytes, granule, bits, has_minimum, \
     SPECDEC__HAS(name) ? (specdec__quant_decoder *)(decode) : NULL, {__VA_ARGS__}},
static const specdec__quant_type specdec__quant_types[] = {SPECDEC__QUANT_TYPES(SPECDEC__QUANT_ROW)};

/* The row of a type number, or NULL when it is not read. */
static SPECDEC__UNUSED const specdec__quant_type *specdec__quant_find(uint32_t number)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__quant_types); i++)
        if (specdec__quant_types[i].number == number)
            return &specdec__quant_types[i];
    return NULL;
}

/* Was a type left out by SPECDEC_TYPES? */
SPECDEC__INLINE int specdec__quant_left_out(const specdec__quant_type *type) { return type->granule && !type->decode; }

/* Bytes of a tensor of so many elements in rows of row elements. SIZE_MAX when rows are no multiple of the block, or
   the size does not fit; 0 for unknown types. */
static SPECDEC__UNUSED size_t specdec__quant_bytes(uint32_t number, uint64_t elements, uint64_t row)
{
    const specdec__quant_type *type = specdec__quant_find(number);

    if (!type)
        return 0;
    if (row % type->block || elements % type->block || elements / type->block > (uint64_t)(SIZE_MAX / type->bytes))
        return SIZE_MAX;
    return (size_t)(elements / type->block) * type->bytes;
}

/* One quantised block to floats, out (block). Granules are multiples of 16. */
SPECDEC__VECTORISE static void specdec__quant_block_to_float(const specdec__quant_type *type,
                                                             const unsigned char *block, float *out)
{
    int8_t codes[SPECDEC__QUANT_BLOCK];
    float scale[SPECDEC__QUANT_GRANULES], minimum[SPECDEC__QUANT_GRANULES];
    int i, k;

    type->decode(block, codes, scale, minimum);
    for (i = 0; i < type->block; i += 16) {
        float s = scale[i / type->granule], m = type->has_minimum ? minimum[i / type->granule] : 0;

        if (type->has_minimum)
            for (k = 0; k < 16; k++)
                out[i + k] = s * (float)codes[i + k] + m;
        else
            for (k = 0; k < 16; k++)
                out[i + k] = s * (float)codes[i + k];
    }
}

/* A row of elements (a multiple of the block) of any type to floats, out (elements). */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_to_float(const specdec__quant_type *type,
                                                                       const void *row, size_t elements, float *out)
{
    const unsigned char *at = (const unsigned char *)row;
    size_t i;

    if (type->number == SPECDEC__TYPE_F32)
        for (i = 0; i < elements; i++)
            out[i] = specdec__load_f32(at + 4 * i);
    else if (type->number == SPECDEC__TYPE_F16)
        for (i = 0; i < elements; i++)
            out[i] = specdec__load_f16(at + 2 * i);
    else if (type->number == SPECDEC__TYPE_BF16)
        for (i = 0; i < elements; i++)
            out[i] = specdec__float_from_bf16(specdec__load_u16(at + 2 * i));
    else
        for (i = 0; i < elements / type->block; i++)
            specdec__quant_block_to_float(type, at + i * type->bytes, out + i * type->block);
}

/* values (block) -> block (bytes), to the smallest (weighted) squared error found. Defined for every input, but what
   lies beyond the range of half floats comes back infinite or clamped. */
typedef void specdec__quant_encoder(const float *values, unsigned char *block);

/* The encoder of a type, NULL for plain floats and for types that are only read. A function, not a row of a table: a
   program that encodes nothing holds no encoder. */
static SPECDEC__UNUSED specdec__quant_encoder *specdec__quant_encoder_of(const specdec__quant_type *type)
{
#ifdef SPECDEC_NO_ENCODERS
    (void)type;
    return NULL;
#else
    switch (type->number) {
    case SPECDEC__TYPE_Q4_0: return specdec__quant_encode_q4_0;
    case SPECDEC__TYPE_Q8_0: return specdec__quant_encode_q8_0;
    case SPECDEC__TYPE_Q4_K: return specdec__quant_encode_q4_k;
    case SPECDEC__TYPE_Q6_K: return specdec__quant_encode_q6_k;
    default: return NULL;
    }
#endif
}

/* A row of floats (elements, a multiple of the block) to a plain type or one that has an encoder. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_from_float(const specdec__quant_type *type,
                                                                         const float *values, size_t elements,
                                                                         void *row)
{
    unsigned char *at = (unsigned char *)row;
    size_t i;

    if (type->number == SPECDEC__TYPE_F32)
        for (i = 0; i < elements; i++)
            specdec__store_u32(at + 4 * i, specdec__bits_from_float(values[i]));
    else if (type->number == SPECDEC__TYPE_F16)
        for (i = 0; i < elements; i++)
            specdec__store_u16(at + 2 * i, specdec__f16_from_float(values[i]));
    else if (type->number == SPECDEC__TYPE_BF16)
        for (i = 0; i < elements; i++)
            specdec__store_u16(at + 2 * i, specdec__bf16_from_float(values[i]));
    else
        for (i = 0; i < elements / type->block; i++)
            specdec__quant_encoder_of(type)(values + i * type->block, at + i * type->bytes);
}

/* Bits 0, 4, 8 .. 28 of a word, side by side. */
SPECDEC__INLINE uint32_t specdec__quant_gather_bits(uint32_t word)
{
    word &= 0x11111111u;
    word = (word | word >> 3) & 0x03030303u;
    word = (word | word >> 6) & 0x000F000Fu;
    return (word | word >> 12) & 0xFFu;
}

/* The low eight bits of a word to bits 0, 4, 8 .. 28. */
SPECDEC__INLINE uint32_t specdec__quant_scatter_bits(uint32_t byte)
{
    byte = (byte | byte << 12) & 0x000F000Fu;
    byte = (byte | byte << 6) & 0x03030303u;
    return (byte | byte << 3) & 0x11111111u;
}

/* Bit 4*i + j of word goes to bit 8*j + i (i < 8, j < 4): byte j then holds the high bits of the elements 4*i + j, so
   that a lane unpacks 4 neighbouring elements with one shift and one mask. */
SPECDEC__INLINE uint32_t specdec__quant_transpose_bits(uint32_t word)
{
    return specdec__quant_gather_bits(word) | specdec__quant_gather_bits(word >> 1) << 8 |
           specdec__quant_gather_bits(word >> 2) << 16 | specdec__quant_gather_bits(word >> 3) << 24;
}

/* The inverse of specdec__quant_transpose_bits. */
SPECDEC__INLINE uint32_t specdec__quant_transpose_bits_back(uint32_t word)
{
    return specdec__quant_scatter_bits(word & 255) | specdec__quant_scatter_bits(word >> 8 & 255) << 1 |
           specdec__quant_scatter_bits(word >> 16 & 255) << 2 | specdec__quant_scatter_bits(word >> 24) << 3;
}

/* Moves count units of one field, from_step and to_step bytes apart. If back is not 0, bit-transposed words are
   restored. */
SPECDEC__INLINE void specdec__quant_move_units(int unit, int count, int back, const unsigned char *from,
                                               size_t from_step, unsigned char *to, size_t to_step)
{
    int i;

    if (unit == 4)
        for (i = 0; i < count; i++)
            memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, 4);
    else if (unit == 2)
        for (i = 0; i < count; i++)
            memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, 2);
    else if (unit == 1)
        for (i = 0; i < count; i++)
            to[(size_t)i * to_step] = from[(size_t)i * from_step];
    else
        for (i = 0; i < count; i++) {
            uint32_t word = specdec__load_u32(from + (size_t)i * from_step);
            specdec__store_u32(to + (size_t)i * to_step, back ? specdec__quant_transpose_bits_back(word)
                                                              : specdec__quant_transpose_bits(word));
        }
}

/* Four words at any address. */
SPECDEC__INLINE specdec__words specdec__quant_load_words(const unsigned char *at)
{
    specdec__words words;

    memcpy(&words, at, sizeof words);
    return words;
}

/* Four words to any address. */
SPECDEC__INLINE void specdec__quant_store_words(unsigned char *at, specdec__words words)
{
    memcpy(at, &words, sizeof words);
}

/* Four words of each of 16 rows, step apart, to four times 16 words: word i of every row from to + 64 * i on. */
SPECDEC__INLINE void specdec__quant_move_words(const unsigned char *from, size_t step, unsigned char *to)
{
    int row;

    for (row = 0; row < SPECDEC__QUANT_ROWS; row += 4, from += 4 * step, to += 16) {
        specdec__words a = specdec__quant_load_words(from), b = specdec__quant_load_words(from + step);
        specdec__words c = specdec__quant_load_words(from + 2 * step), d = specdec__quant_load_words(from + 3 * step);
        specdec__words ab = SPECDEC__PICK(a, b, 0, 4, 1, 5), cd = SPECDEC__PICK(c, d, 0, 4, 1, 5);

        specdec__quant_store_words(to, SPECDEC__PICK(ab, cd, 0, 1, 4, 5));
        specdec__quant_store_words(to + 64, SPECDEC__PICK(ab, cd, 2, 3, 6, 7));
        ab = SPECDEC__PICK(a, b, 2, 6, 3, 7);
        cd = SPECDEC__PICK(c, d, 2, 6, 3, 7);
        specdec__quant_store_words(to + 128, SPECDEC__PICK(ab, cd, 0, 1, 4, 5));
        specdec__quant_store_words(to + 192, SPECDEC__PICK(ab, cd, 2, 3, 6, 7));
    }
}

/* Interleaves one field of a block of row_count rows, which are row_bytes apart: count units of each row. */
SPECDEC__INLINE void specdec__quant_interleave_field(int unit, int count, const unsigned char *from, size_t row_bytes,
                                                     int row_count, unsigned char *to)
{
    size_t size = unit == SPECDEC__QUANT_BITS32 ? 4 : (size_t)unit;
    int row, i;

    if (unit == 4 && row_count == SPECDEC__QUANT_ROWS && count % 4 == 0)
        for (i = 0; i < count; i += 4)
            specdec__quant_move_words(from + i * 4, row_bytes, to + i * 4 * SPECDEC__QUANT_ROWS);
    else if (unit == 2 && row_count == SPECDEC__QUANT_ROWS)
        for (i = 0; i < count; i++, from += 2, to += 2 * SPECDEC__QUANT_ROWS)
            for (row = 0; row < SPECDEC__QUANT_ROWS; row++)
                memcpy(to + row * 2, from + (size_t)row * row_bytes, 2);
    else
        for (row = 0; row < row_count; row++)
            specdec__quant_move_units(unit, count, 0, from + (size_t)row * row_bytes, size, to + (size_t)row * size,
                                      size * SPECDEC__QUANT_ROWS);
}

/* Repacks row_count (1..16) rows, row_bytes apart, of so many blocks each into one row of tiles: 16 * bytes for each
   block, block after block. Inside a tile: for each field of the block in order, for each unit of the field, the units
   of the 16 rows side by side; so SIMD lanes are rows. Rows that are missing are zero bytes. Only bits are permuted. */
static SPECDEC__UNUSED void specdec__quant_interleave(const specdec__quant_type *type, const unsigned char *rows,
                                                      size_t row_bytes, int row_count, size_t blocks,
                                                      unsigned char *tile_out)
{
    size_t b;

    for (b = 0; b < blocks; b++) {
        const unsigned char *from = rows + b * type->bytes;
        unsigned char *tile = tile_out + b * type->bytes * SPECDEC__QUANT_ROWS;
        int f, row;

        if (b * type->bytes % 64 < type->bytes) /* a new cache line of each row: the tile after this one is next */
            for (row = 0; row < row_count; row++)
                __builtin_prefetch(from + (size_t)(row + SPECDEC__QUANT_ROWS) * row_bytes, 0, 2);
        if (row_count < SPECDEC__QUANT_ROWS)
            memset(tile, 0, (size_t)type->bytes * SPECDEC__QUANT_ROWS);
        for (f = 0; f < SPECDEC__QUANT_FIELDS && type->fields[f].unit; f++) {
            int unit = type->fields[f].unit, count = type->fields[f].count;
            size_t size = unit == SPECDEC__QUANT_BITS32 ? 4 : (size_t)unit;

            specdec__quant_interleave_field(unit, count, from, row_bytes, row_count, tile);
            from += size * (size_t)count;
            tile += size * (size_t)count * SPECDEC__QUANT_ROWS;
        }
    }
}

/* Takes one row's block (bytes) back out of the tile of that block. */
static SPECDEC__UNUSED void specdec__quant_deinterleave_block(const specdec__quant_type *type,
                                                              const unsigned char *tile, int row,
                                                              unsigned char *block_out)
{
    int f;

    for (f = 0; f < SPECDEC__QUANT_FIELDS && type->fields[f].unit; f++) {
        int unit = type->fields[f].unit, count = type->fields[f].count;
        size_t size = unit == SPECDEC__QUANT_BITS32 ? 4 : (size_t)unit;

        specdec__quant_move_units(unit, count, 1, tile + (size_t)row * size, size * SPECDEC__QUANT_ROWS,
                                  block_out, size);
        block_out += size * (size_t)count;
        tile += size * (size_t)count * SPECDEC__QUANT_ROWS;
    }
}

/* =====================================================================================================================
 * >>op (private): scalar functions of a float or a double that libm would give different bits for on every machine.
 *     May call: >>base
 * ================================================================================================================== */

/* a*b + c rounded once, on every machine. Without fused hardware: the exact product in double, the sum rounded to odd
   (Boldo and Melquiond 2008), then to float. */
#if defined(__FP_FAST_FMAF) || defined(__aarch64__) || defined(__FMA__)
/* The hardware has it. */
SPECDEC__INLINE float specdec__fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
static SPECDEC__UNUSED __attribute__((noinline)) float specdec__fma(float a, float b, float c)
{
    double product = (double)a * (double)b, addend = (double)c, sum = product + addend;
    double back = sum - product, error = (product - (sum - back)) + (addend - back);
    uint64_t bits;

    memcpy(&bits, &sum, sizeof bits);
    if (error == error && error != 0 && !(bits & 1)) {
        if ((error > 0) == (sum > 0))
            bits++;
        else
            bits--;
        memcpy(&sum, &bits, sizeof sum);
    }
    return (float)sum;
}
#endif

/* 1/sqrt(x) for normal x > 0, by Newton's method in double: the same steps, so the same bits, everywhere. */
static double specdec__inverse_root(double x)
{
    double y;
    uint64_t bits;
    int i;

    memcpy(&bits, &x, sizeof bits);
    bits = UINT64_C(0x5FE6EB50C7B537A9) - (bits >> 1);
    memcpy(&y, &bits, sizeof y);
    for (i = 0; i < 5; i++) {
        y = y * (1.5 - specdec__product(0.5 * x * y, y));
    }
    return y;
}

/* e^x. One float here and sixteen lanes in >>lanes take the same steps, so they give the same bits: e^x = 2^n * p. The
   low bits of shifter are those of n. madd(a, b, c) is a * b + c rounded once, set(a) the constant, sub(a, b) a
   difference. Reduction as Cody and Waite (1980), then a polynomial of degree 6 in r, |r| <= log(2) / 2. */
#define SPECDEC__EXP(x, shifter, n, r, p, madd, set, sub) \
    do { \
        shifter = madd(x, set(1.44269502f), set(12582912.0f)); /* 1.5 * 2^23: adding it rounds to an integer */ \
        n = sub(shifter, set(12582912.0f)); \
        r = madd(n, set(-0.693145752f), x); \
        r = madd(n, set(-1.42860677e-6f), r); \
        p = madd(set(0.00138144637f), r, set(0.00836878084f)); \
        p = madd(p, r, set(0.0416683927f)); \
        p = madd(p, r, set(0.166665196f)); \
        p = madd(p, r, set(0.49999994f)); \
        p = madd(p, r, set(1.0f)); \
        p = madd(p, r, set(1.0f)); \
    } while (0)
#define SPECDEC__EXP_SET(a) (a)
#define SPECDEC__EXP_SUB(a, b) ((a) - (b))

/* e^x within 1 ulp. Above 88.72: infinity; below -87.33, where results stop being normal floats: 0; NaN stays NaN. */
static SPECDEC__UNUSED float specdec__exp(float x)
{
    float shifter, n, r, p;
    uint32_t whole, half;

    if (!(x <= 88.7228317f))
        return x > 0.0f ? specdec__float_from_bits(0x7f800000u) : x;
    if (x < -87.3365402f)
        return 0.0f;
    SPECDEC__EXP(x, shifter, n, r, p, specdec__fma, SPECDEC__EXP_SET, SPECDEC__EXP_SUB);
    whole = specdec__bits_from_float(shifter) - specdec__bits_from_float(12582912.0f) + 256u; /* n + 256, in 130..384 */
    half = whole >> 1;
    return p * specdec__float_from_bits((half - 1u) << 23) * specdec__float_from_bits((whole - half - 1u) << 23);
}

/* Natural logarithm of a positive normal float, within 1 ulp. Anything else gives some value, never a trap. */
static SPECDEC__UNUSED float specdec__log(float x)
{
    uint32_t bits = specdec__bits_from_float(x) - 0x3f3504f3u; /* sqrt(1/2) */
    float exponent = (float)((int)((bits + 0x40000000u) >> 23) - 128);
    float f = specdec__float_from_bits((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float square = f * f;
    float p = specdec__fma(-0.076344952f, f, 0.12761575f);

    p = specdec__fma(p, f, -0.131601825f);
    p = specdec__fma(p, f, 0.142017588f);
    p = specdec__fma(p, f, -0.166233569f);
    p = specdec__fma(p, f, 0.200012267f);
    p = specdec__fma(p, f, -0.250008196f);
    p = specdec__fma(p, f, 0.333333313f);
    p = specdec__fma(p, f, -0.5f);
    p = specdec__fma(p, square, exponent * 1.42860677e-6f);
    return specdec__fma(exponent, 0.693145752f, p + f);
}

/* Natural logarithm of a normal double > 0: halves into [sqrt(1/2), sqrt(2)), then the series of atanh. About 1e-15. */
static double specdec__log_double(double x)
{
    int exponent = 0, i;
    double z, square, power, sum = 0;

    for (; x >= 1.4142135623730951; x *= 0.5)
        exponent++;
    for (; x < 0.7071067811865476; x *= 2)
        exponent--;
    z = (x - 1) / (x + 1);
    square = z * z;
    power = z;
    for (i = 1; i < 40; i += 2) {
        sum += power / i;
        power *= square;
    }
    return 2 * sum + specdec__product(exponent, 0.6931471805599453);
}

/* e^x for |x| < 700, about 1e-15: a power of two times a Taylor series. */
static double specdec__exp_double(double x)
{
    int k = (int)(specdec__product(x, 1.4426950408889634) + (x < 0 ? -0.5 : 0.5)), i;
    double r = x - specdec__product(k, 0.6931471805599453), term = 1, sum = 1;

    for (i = 1; i < 20; i++) {
        term *= r / i;
        sum += term;
    }
    for (; k > 0; k--)
        sum *= 2;
    for (; k < 0; k++)
        sum *= 0.5;
    return sum;
}

/* Horner's rule with every product rounded: sum of coefficient[i] * x^i. */
static double specdec__polynomial(const double *coefficient, int count, double x)
{
    double sum = coefficient[count - 1];
    int i;

    for (i = count - 2; i >= 0; i--)
        sum = coefficient[i] + specdec__product(sum, x);
    return sum;
}

/* sin and cos of |x| < 2^30, to about 1e-15 for small x and 1e-9 at the end of that range. */
static void specdec__sine_cosine(double x, float *sine, float *cosine)
{
    static const double sines[] = {1.0,          -1.0 / 6,        1.0 / 120,          -1.0 / 5040,
                                   1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
    static const double cosines[] = {1.0,         -1.0 / 2,       1.0 / 24,          -1.0 / 720,
                                     1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600.0, -1.0 / 87178291200.0};
    double quarter = (specdec__product(x, 0.6366197723675814) + 6755399441055744.0) - 6755399441055744.0;
    double r = (x - specdec__product(quarter, 1.5707963267341256)) - specdec__product(quarter, 6.077100506506192e-11);
    double s = r * specdec__polynomial(sines, (int)SPECDEC__COUNT(sines), r * r);
    double c = specdec__polynomial(cosines, (int)SPECDEC__COUNT(cosines), r * r);
    int64_t k = (int64_t)quarter;

    *sine = (float)(k & 1 ? c : s);
    *cosine = (float)(k & 1 ? s : c);
    if (k & 2)
        *sine = -*sine;
    if ((k + 1) & 2)
        *cosine = -*cosine;
}

/* =====================================================================================================================
 * >>kernel (private): matrix tiles times columns and float loops: scalar reference, then one block per instruction set
 *     with the same names, and one table to choose from. May call: >>base >>os >>quant >>op
 *
 * Canonical order (law 1). A weight matrix is stored in tiles of 16 rows, and vector lanes are rows, never parts of one
 * sum. A column of activations is quantised in blocks of 32 values: x = scale * (code + offset), code in [-127, 127].
 *     sum    = exact integer sum of weight code * (code + offset) over a granule (16 or 32 values)
 *     result = fma(weight scale * scale, (float)sum, result)
 *     result = fma(minimum, scale * (float)(sum of code + offset), result)       types with a minimum only
 * granule after granule. Float weights: result = fma(weight, x, result), value after value.
 * ================================================================================================================== */

#define SPECDEC__ROWS SPECDEC__QUANT_ROWS /* rows of a tile, lanes of a vector: 16 */
#define SPECDEC__PANEL 256                /* values of each row that are unpacked at a time */
#define SPECDEC__KEYS 64                  /* keys of an attention block, slots of a KV page */

/* Where a part of a block begins in a tile, and the bytes of a tile. Inside a part the units of 4 bytes (see
   specdec__quant_type) are 64 bytes apart, half floats 32 and single bytes 16: those of 16 rows lie side by side. */
#define SPECDEC__TILE_AT(type, part) (SPECDEC__ROWS * offsetof(specdec__block_##type, part))
#define SPECDEC__TILE_BYTES(type) (SPECDEC__ROWS * sizeof(specdec__block_##type))

/* 16 rows x up to 256 values, unpacked for the inner loop. What codes and pair hold is private to an instruction
   set. */
typedef struct specdec__panel {
    union {
        int8_t codes[SPECDEC__PANEL * SPECDEC__ROWS];  /* (value/4, row, 4) */
        float values[SPECDEC__PANEL * SPECDEC__ROWS];  /* (value, row): float types */
    } u;
    int32_t pair[SPECDEC__PANEL / 16][SPECDEC__ROWS];  /* (granule, row) */
    float scale[SPECDEC__PANEL / 16][SPECDEC__ROWS];   /* (granule, row) */
    float minimum[SPECDEC__PANEL / 16][SPECDEC__ROWS]; /* (granule, row) */
} specdec__panel;

/* n columns of quantised activations, K values each; block = 32 values. */
typedef struct specdec__columns {
    int n;           /* columns */
    int8_t *codes;   /* (block, column, 32) */
    float *scale;    /* (block, column) */
    int32_t *pair32; /* (block, column): offset in the low half, sum of 32 codes in the high half */
    int32_t *pair16; /* (block, column, 2): the same for each half of the block */
    float *sum32;    /* (block, column): scale * sum of (code + offset) */
    float *sum16;    /* (block, column, 2) */
    float *values;   /* (column, stride): the unquantised activations, for float weights */
    int stride;      /* floats between columns of values */
} specdec__columns;

typedef void specdec__unpack_function(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                      specdec__panel *panel);
typedef void specdec__dot_function(const specdec__panel *panel, int blocks, const specdec__columns *x, int block,
                                   int column, int count, float *sums);
/* A run of values of one or two tiles of the same type; the second is NULL if there is none. */
typedef struct specdec__tiles {
    const specdec__quant_type *type;
    const unsigned char *tile[2];
    const unsigned char *next[2]; /* what is likely to be multiplied after them; any address */
} specdec__tiles;
/* sums[i] (count, 16) += blocks*32 values of tile i times columns [column, column + count), from block `block` on; when
   that is 0, sums begin at zero. panels: room for two. */
typedef void specdec__multiply_function(const specdec__tiles *tiles, int blocks, specdec__panel *panels,
                                        const specdec__columns *x, int block, int column, int count,
                                        float *const *sums);

/* The float loops of an instruction set: name, result, parameters. They are written once, in >>lanes. */
#define SPECDEC__KERNEL_LOOPS(X, isa) \
    /* Values [from, to) of x * weight / rms(x (length)); x and weight are padded with zeros to a multiple of 16. */ \
    X(isa, norm, void, (const float *x, const float *weight, float epsilon, int length, int from, int to, float *out)) \
    /* Blocks [from, to) of one row of values -> column c of columns. */ \
    X(isa, quantise, void, (const float *row, int from, int to, int c, const specdec__columns *out)) \
    /* x = silu(x) * by, elementwise. */ \
    X(isa, silu, void, (float *x, const float *by, int count)) \
    X(isa, gelu, void, (float *x, const float *by, int count)) \
    X(isa, gelu_exact, void, (float *x, const float *by, int count)) \
    /* out = x * cosine + partner * sine, elementwise, in place on x. */ \
    X(isa, rotate, void, (float *x, const float *partner, const float *cosine, const float *sine, int count)) \
    /* queries (count <= 4, dim) . keys (dim, 64) -> scores (count, 64). */ \
    X(isa, scores, void, (const float *queries, int dim, int count, const float *keys, float *scores)) \
    /* scores (64), [from, to) of them -> exp(score - *max) in place, zeros beyond, once *max has grown to the largest \
       of them. Adds them to sums (16). Returns what the growth has scaled sums by: what came before has to be scaled \
       by it, too. */ \
    X(isa, softmax, float, (float *scores, int from, int to, float *max, float *sums)) \
    /* out[i] (dim) += over j < valid, in order, weights (count <= 4, 64) * values (64, dim). */ \
    X(isa, weigh, void, (const float *weights, int count, const float *values, int valid, int dim, float *const *out)) \
    /* out (count, stride) = sums (count, 16) [+ bias]. */ \
    X(isa, put, void, (const float *sums, int count, const float *bias, float *out, size_t stride)) \
    X(isa, scale, void, (float *x, float a, int count)) \
    X(isa, add_scaled, void, (float *x, float a, const float *y, int count)) \
    /* x = cap * tanh(x / cap). */ \
    X(isa, cap, void, (float *x, float cap, int count)) \
    /* The sum of x (16). */ \
    X(isa, total, float, (const float *x)) \
    X(isa, f16_to_float, void, (const void *in, int count, float *out)) \
    X(isa, float_to_f16, void, (const float *in, int count, void *out)) \
    /* The nearest codes in [-127, 127] to 32 values over a scale, which is the largest of them over 127 and is \
       returned. */ \
    X(isa, float_to_codes, float, (const float *values, int8_t *codes)) \
    /* out (count) = codes * scales (count/32). */ \
    X(isa, codes_to_float, void, (const int8_t *codes, const float *scales, int count, float *out)) \
    /* The largest of x (count > 0); NaN does not count; -infinity if there is nothing else. */ \
    X(isa, largest, float, (const float *x, int count)) \
    /* How many of count <= 64 tokens could reach `wanted` once Gumbel noise is added to (logit - best) * inverse; the \
       first is token `first` of the row of noise. May be too many, is never too few. */ \
    X(isa, hopefuls, int, (const float *logits, int count, float best, float inverse, float wanted, \
                           uint64_t noise_row, uint32_t first)) \
    /* p = exp((logit - best) / temperature), 0 where that is below e^-87. */ \
    X(isa, weights, void, (const float *logits, int count, float best, float temperature, float *p)) \
    /* Adds max(target - high * draft - low * draft - uniform, 0) to residuals[i % 16] and draft to weights[i % 16]. \
       The products are exact: high and low are floats in doubles. */ \
    X(isa, residuals, void, (const float *target, const float *draft, int count, double high, double low, \
                             double uniform, double *residuals, double *weights))

enum { SPECDEC__SILU, SPECDEC__GELU, SPECDEC__GELU_EXACT, SPECDEC__ACTIVATIONS };

#define SPECDEC__KERNEL_TYPE(isa, name, result, parameters) typedef result specdec__##name##_function parameters;
#define SPECDEC__KERNEL_MEMBER(isa, name, result, parameters) specdec__##name##_function *name;
SPECDEC__KERNEL_LOOPS(SPECDEC__KERNEL_TYPE, )

/* What an instruction set supplies. Every function gives the same bits in every table. An entry is NULL only where a
   number is no type's; in multiply, also where it would not be faster. */
typedef struct specdec__kernels {
    const char *name;
    /* Unpacks blocks*32 values of 16 rows from a tile. */
    specdec__unpack_function *unpack[SPECDEC__TYPE_COUNT];
    /* Adds panel * columns to sums (column, row). */
    specdec__dot_function *dot[SPECDEC__TYPE_COUNT];
    /* Unpacking and dot in one, where that is faster; else NULL. */
    specdec__multiply_function *multiply[SPECDEC__TYPE_COUNT];
    SPECDEC__KERNEL_LOOPS(SPECDEC__KERNEL_MEMBER, )
    specdec__silu_function *activate[SPECDEC__ACTIVATIONS]; /* silu, gelu, gelu_exact */
} specdec__kernels;

/* What an instruction set has to define before it includes >>lanes: V, a vector of 1, 4 or 16 floats (SPECDEC__LANES),
   and the operations on it, as specdec__ISA_name: name, result, parameters. Each has the bits of the scalar one.
   >>lanes does not compile while one is missing. */
#define SPECDEC__LANE_OPERATIONS(X, V) \
    X(load, V, (const float *)) \
    X(store, void, (float *, V)) \
    X(set, V, (float)) /* all lanes */ \
    X(add, V, (V, V)) \
    X(sub, V, (V, V)) \
    X(mul, V, (V, V)) \
    X(div, V, (V, V)) \
    X(madd, V, (V, V, V)) /* a * b + c, rounded once */ \
    X(max, V, (V, V)) /* a > b ? a : b */ \
    X(min, V, (V, V)) /* a < b ? a : b */ \
    X(scale2, V, (V, V)) /* a * 2^n, where the other one is n + 1.5 * 2^23 */ \
    X(sum, float, (const V *)) /* of 16 lanes, by the canonical tree: lanes i and i + 8, then i + 4, i + 2, i + 1 */ \
    X(highest, float, (const V *)) /* of 16 lanes */ \
    X(first_bits, int32_t, (V)) /* the bits of lane 0 */ \
    X(store_low_bytes, void, (int8_t *, V)) /* of the bits of each lane */ \
    X(sum_codes, int32_t, (const int8_t *)) /* of 16 */ \
    X(load_f16, V, (const void *)) \
    X(load_bf16, V, (const void *)) \
    X(store_f16, void, (void *, V))

/* --- scalar ------------------------------------------------------------------------------------------------------- */

/* Generic unpacking: every type through its decode function. The oracle for the others, and their fallback. */
static void specdec__unpack_codes(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                  specdec__panel *panel)
{
    unsigned char block[SPECDEC__QUANT_BYTES];
    int8_t codes[SPECDEC__QUANT_BLOCK];
    int per = type->block, granules = per / type->granule, whole = blocks * 32 / per, row, i, j;

    for (i = 0; i < whole; i++, tile += (size_t)type->bytes * SPECDEC__ROWS)
        for (row = 0; row < SPECDEC__ROWS; row++) {
            float scale[SPECDEC__QUANT_GRANULES], minimum[SPECDEC__QUANT_GRANULES];

            specdec__quant_deinterleave_block(type, tile, row, block);
            type->decode(block, codes, scale, minimum);
            for (j = 0; j < per; j += 4)
                memcpy(panel->u.codes + ((i * per + j) * SPECDEC__ROWS + row * 4), codes + j, 4);
            for (j = 0; j < granules; j++) {
                panel->scale[i * granules + j][row] = scale[j];
                if (type->has_minimum)
                    panel->minimum[i * granules + j][row] = minimum[j];
            }
        }
}

/* Adds a panel of codes times count columns to sums (column, 16): the oracle for all other dots. */
SPECDEC__INLINE void specdec__scalar_dot(const specdec__panel *panel, int blocks, const specdec__columns *x, int block,
                                         int column, int count, float *sums, int granule, int has_minimum)
{
    int b, c, row, g, i;

    for (c = 0; c < count; c++)
        for (b = 0; b < blocks; b++) {
            size_t at = (size_t)(block + b) * (size_t)x->n + (size_t)(column + c);
            const int8_t *codes = x->codes + at * 32;
            int offset = (int16_t)(x->pair32[at] & 0xFFFF);

            for (g = 0; g < 32 / granule; g++)
                for (row = 0; row < SPECDEC__ROWS; row++) {
                    int from = b * 32 + g * granule, k = from / granule;
                    float *sum = sums + c * SPECDEC__ROWS + row, scale = panel->scale[k][row] * x->scale[at];
                    int32_t dot = 0;

                    for (i = 0; i < granule; i++)
                        dot += panel->u.codes[((from + i) / 4 * SPECDEC__ROWS + row) * 4 + i % 4] *
                               (codes[g * granule + i] + offset);
                    *sum = specdec__fma(scale, (float)dot, *sum);
                    if (has_minimum)
                        *sum = specdec__fma(panel->minimum[k][row],
                                            granule == 32 ? x->sum32[at] : x->sum16[at * 2 + (size_t)g], *sum);
                }
        }
}

/* The four integer dots of an instruction set, from its inline one. */
#define SPECDEC__DOT(isa, target, name, granule, has_minimum) \
    target static void specdec__##isa##_dot_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, \
                                                   int block, int column, int count, float *sums) \
    { \
        specdec__##isa##_dot(panel, blocks, x, block, column, count, sums, granule, has_minimum); \
    }
#define SPECDEC__DOTS(isa, target) \
    SPECDEC__DOT(isa, target, 16, 16, 0) SPECDEC__DOT(isa, target, 16m, 16, 1) \
    SPECDEC__DOT(isa, target, 32, 32, 0) SPECDEC__DOT(isa, target, 32m, 32, 1)

SPECDEC__DOTS(scalar, )

/* Float lanes in plain C: one. */
typedef float specdec__scalar_v;

/* The operations: SPECDEC__LANE_OPERATIONS says what each computes. */
SPECDEC__INLINE float specdec__scalar_load(const float *at) { return *at; }
SPECDEC__INLINE void specdec__scalar_store(float *at, float a) { *at = a; }
SPECDEC__INLINE float specdec__scalar_set(float a) { return a; }
SPECDEC__INLINE float specdec__scalar_add(float a, float b) { return a + b; }
SPECDEC__INLINE float specdec__scalar_sub(float a, float b) { return a - b; }
SPECDEC__INLINE float specdec__scalar_mul(float a, float b) { return a * b; }
SPECDEC__INLINE float specdec__scalar_div(float a, float b) { return a / b; }
SPECDEC__INLINE float specdec__scalar_madd(float a, float b, float c) { return specdec__fma(a, b, c); }
SPECDEC__INLINE float specdec__scalar_max(float a, float b) { return a > b ? a : b; }
SPECDEC__INLINE float specdec__scalar_min(float a, float b) { return a < b ? a : b; }
SPECDEC__INLINE float specdec__scalar_scale2(float a, float shifter)
{
    return specdec__float_from_bits(specdec__bits_from_float(a) + (specdec__bits_from_float(shifter) << 23));
}
SPECDEC__INLINE void specdec__scalar_store_low_bytes(int8_t *at, float a)
{
    *at = (int8_t)(uint8_t)specdec__bits_from_float(a);
}
SPECDEC__INLINE int32_t specdec__scalar_first_bits(float a) { return (int32_t)specdec__bits_from_float(a); }
SPECDEC__INLINE float specdec__scalar_load_bf16(const void *at)
{
    return specdec__float_from_bf16(specdec__load_u16(at));
}
SPECDEC__INLINE float specdec__scalar_load_f16(const void *at) { return specdec__load_f16(at); }
SPECDEC__INLINE void specdec__scalar_store_f16(void *at, float a)
{
    specdec__store_u16(at, specdec__f16_from_float(a));
}
/* The canonical tree: lanes i and i + 8, then i + 4, i + 2, i + 1. */
SPECDEC__INLINE float specdec__scalar_sum(const float *parts)
{
    float lane[8];
    int i, step;

    for (i = 0; i < 8; i++)
        lane[i] = parts[i] + parts[i + 8];
    for (step = 4; step; step /= 2)
        for (i = 0; i < step; i++)
            lane[i] += lane[i + step];
    return lane[0];
}
/* The largest of 16 lanes. */
SPECDEC__INLINE float specdec__scalar_highest(const float *parts)
{
    float lane[8];
    int i, step;

    for (i = 0; i < 8; i++)
        lane[i] = specdec__scalar_max(parts[i], parts[i + 8]);
    for (step = 4; step; step /= 2)
        for (i = 0; i < step; i++)
            lane[i] = specdec__scalar_max(lane[i], lane[i + step]);
    return lane[0];
}
/* The sum of 16 codes. */
SPECDEC__INLINE int32_t specdec__scalar_sum_codes(const int8_t *codes)
{
    int32_t sum = 0;
    int i;

    for (i = 0; i < 16; i++)
        sum += codes[i];
    return sum;
}

#define SPECDEC__ISA scalar
#define SPECDEC__TARGET
#define SPECDEC__LANES 1
#define SPECDEC__WIDTH 4
#include SPECDEC__FILE

/* --- x86-64: what its instruction sets have in common ------------------------------------------------------------- */

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD)
/* Without optimisation gcc's intrinsics are function-like macros that convert masks in our lines. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__OPTIMIZE__)
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

/* What functions for AVX2 and AVX-512 are compiled for, whether there is AVX-VNNI (with newer compilers, whose
   assemblers know it), and whether other files see the tables. */
#define SPECDEC__AVX2 __attribute__((target("avx2,fma,f16c")))
#if (defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11)
#define SPECDEC__AVXVNNI
#endif
#define SPECDEC__AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")))
#if defined(SPECDEC_KERNELS) || defined(SPECDEC_KERNELS_APART)
#define SPECDEC__TABLE SPECDEC__OS_HIDDEN
#else
#define SPECDEC__TABLE static
#endif

/* Makes the compiler load a vector once, not again for every use. */
#define SPECDEC__KEEP(vector) __asm__("" : "+v"(vector))

/* What lies unpacked in a panel counts as a type of its own, by granule and minimum; signed: codes that were not made
   unsigned. */
enum {
    SPECDEC__X86_PANEL_32 = SPECDEC__TYPE_COUNT, SPECDEC__X86_PANEL_32M, SPECDEC__X86_PANEL_16, SPECDEC__X86_PANEL_16M,
    SPECDEC__X86_PANEL_32_SIGNED, SPECDEC__X86_PANEL_16_SIGNED
};

/* Each type, and each kind of panel, has machine code of its own. What that depends on are constants from the type's
   row, kept in masks with a bit for each type and kind of panel. Masks compile faster than switches. */
#define SPECDEC__X86_MASK(condition, number) | (uint64_t)((condition) != 0) << (number)
#define SPECDEC__X86_BIT_0(number, name, block, bytes, granule, bits, ...) SPECDEC__X86_MASK((bits) & 1, number)
#define SPECDEC__X86_BIT_1(number, name, block, bytes, granule, bits, ...) SPECDEC__X86_MASK((bits) & 2, number)
#define SPECDEC__X86_BIT_2(number, name, block, bytes, granule, bits, ...) SPECDEC__X86_MASK((bits) & 4, number)
#define SPECDEC__X86_BIT_3(number, name, block, bytes, granule, bits, ...) SPECDEC__X86_MASK((bits) & 8, number)
#define SPECDEC__X86_IS_32(number, name, block, ...) SPECDEC__X86_MASK((block) == 32, number)
#define SPECDEC__X86_SPAN(number, name, block, bytes, ...) case number: return (bytes) * SPECDEC__ROWS * 32 / (block);
#define SPECDEC__X86_IS_16(number, name, block, bytes, granule, ...) SPECDEC__X86_MASK((granule) == 16, number)
#define SPECDEC__X86_MINIMUM(number, name, block, bytes, granule, bits, minimum, ...) SPECDEC__X86_MASK(minimum, number)
#define SPECDEC__X86_PANEL(number) (UINT64_C(1) << SPECDEC__X86_PANEL_##number)

/* Does a type have minimums besides scales? */
SPECDEC__INLINE int specdec__x86_has_minimum(int type)
{
    const uint64_t panels = SPECDEC__X86_PANEL(32M) | SPECDEC__X86_PANEL(16M);
    const uint64_t mask = panels SPECDEC__QUANT_TYPES(SPECDEC__X86_MINIMUM);

    return (int)(mask >> type & 1);
}

/* Bits of a code: 5 in panels of unsigned codes, 8 in those of signed ones. */
SPECDEC__INLINE int specdec__x86_bits(int type)
{
    const uint64_t fives = SPECDEC__X86_PANEL(32) | SPECDEC__X86_PANEL(32M) | SPECDEC__X86_PANEL(16) |
                           SPECDEC__X86_PANEL(16M);
    const uint64_t eights = SPECDEC__X86_PANEL(32_SIGNED) | SPECDEC__X86_PANEL(16_SIGNED);
    const uint64_t mask0 = fives SPECDEC__QUANT_TYPES(SPECDEC__X86_BIT_0);
    const uint64_t mask1 = 0 SPECDEC__QUANT_TYPES(SPECDEC__X86_BIT_1);
    const uint64_t mask2 = fives SPECDEC__QUANT_TYPES(SPECDEC__X86_BIT_2);
    const uint64_t mask3 = eights SPECDEC__QUANT_TYPES(SPECDEC__X86_BIT_3);

    return (int)((mask0 >> type & 1) | (mask1 >> type & 1) << 1 | (mask2 >> type & 1) << 2 | (mask3 >> type & 1) << 3);
}

/* What is added to a code to make it unsigned. */
SPECDEC__INLINE int specdec__x86_bias(int type)
{
    return specdec__x86_has_minimum(type) ? 0 : 1 << (specdec__x86_bits(type) - 1);
}
/* The highest unsigned code. */
SPECDEC__INLINE int specdec__x86_limit(int type) { return (1 << specdec__x86_bits(type)) - 1; }

/* Bytes of a tile of one block of 32 values, or an eighth of one of 256. */
SPECDEC__INLINE int specdec__x86_span(int type)
{
    switch (type) {
    SPECDEC__QUANT_TYPES(SPECDEC__X86_SPAN)
    default: return 0;
    }
}

/* Types whose scales stand, as half floats, at the start of every 32 values. */
SPECDEC__INLINE int specdec__x86_is_block_32(int type)
{
    const uint64_t mask = 0 SPECDEC__QUANT_TYPES(SPECDEC__X86_IS_32);

    return (int)(mask >> type & 1);
}

/* Values that share a scale. */
SPECDEC__INLINE int specdec__x86_granule(int type)
{
    const uint64_t panels = SPECDEC__X86_PANEL(16) | SPECDEC__X86_PANEL(16M) | SPECDEC__X86_PANEL(16_SIGNED);
    const uint64_t mask = panels SPECDEC__QUANT_TYPES(SPECDEC__X86_IS_16);

    return mask >> type & 1 ? 16 : 32;
}

/* Where the codes of a type stand and which function unpacks them: cases for a switch. all: a tile, at: where block
   `block` of 32 values begins in it, if it begins anywhere; both from the first row of a vector on. */
#define SPECDEC__X86_CODES(isa, all, at, block, u) \
    case SPECDEC__TYPE_Q4_0: specdec__##isa##_codes_32((at) + SPECDEC__TILE_AT(q4_0, nibbles), NULL, u); break; \
    case SPECDEC__TYPE_Q4_1: specdec__##isa##_codes_32((at) + SPECDEC__TILE_AT(q4_1, nibbles), NULL, u); break; \
    case SPECDEC__TYPE_Q5_0: \
        specdec__##isa##_codes_32((at) + SPECDEC__TILE_AT(q5_0, nibbles), (at) + SPECDEC__TILE_AT(q5_0, high), u); \
        break; \
    case SPECDEC__TYPE_Q5_1: \
        specdec__##isa##_codes_32((at) + SPECDEC__TILE_AT(q5_1, nibbles), (at) + SPECDEC__TILE_AT(q5_1, high), u); \
        break; \
    case SPECDEC__TYPE_IQ4_NL: \
        specdec__##isa##_codes_32((at) + SPECDEC__TILE_AT(iq4_nl, nibbles), NULL, u); \
        specdec__##isa##_iq4(u); \
        break; \
    case SPECDEC__TYPE_IQ4_XS: \
        specdec__##isa##_codes_32((all) + SPECDEC__TILE_AT(iq4_xs, nibbles) + (block) * 256, NULL, u); \
        specdec__##isa##_iq4(u); \
        break; \
    case SPECDEC__TYPE_Q2_K: \
        specdec__##isa##_codes_crumbs((all) + SPECDEC__TILE_AT(q2_k, crumbs), NULL, block, u); \
        break; \
    case SPECDEC__TYPE_Q3_K: \
        specdec__##isa##_codes_crumbs((all) + SPECDEC__TILE_AT(q3_k, crumbs), (all) + SPECDEC__TILE_AT(q3_k, high), \
                                      block, u); \
        break; \
    case SPECDEC__TYPE_Q4_K: \
        specdec__##isa##_codes_k((all) + SPECDEC__TILE_AT(q4_k, nibbles), NULL, block, u); \
        break; \
    case SPECDEC__TYPE_Q5_K: \
        specdec__##isa##_codes_k((all) + SPECDEC__TILE_AT(q5_k, nibbles), (all) + SPECDEC__TILE_AT(q5_k, high), \
                                 block, u); \
        break; \
    case SPECDEC__TYPE_Q6_K: specdec__##isa##_codes_q6_k(all, block, u); break;

/* The types that are unpacked to a panel by a function of their own, from the same template. */
#define SPECDEC__X86_UNPACKED(X, isa) \
    X(isa, Q4_1) X(isa, Q5_0) X(isa, Q5_1) X(isa, Q2_K) X(isa, Q3_K) X(isa, Q5_K) X(isa, IQ2_XXS) X(isa, IQ4_NL) \
    X(isa, IQ4_XS)
#define SPECDEC__X86_UNPACK(isa, number) \
    SPECDEC__X86_TARGET_##isa static void specdec__##isa##_unpack_##number(const specdec__quant_type *type, \
        const unsigned char *tile, int blocks, specdec__panel *panel) \
    { \
        (void)type; \
        specdec__##isa##_unpack(SPECDEC__TYPE_##number, tile, blocks, panel); \
    }
#define SPECDEC__X86_TARGET_avx2 SPECDEC__AVX2
#define SPECDEC__X86_TARGET_avx512 SPECDEC__AVX512

/* Prefetches so many bytes, SPECDEC__AHEAD bytes ahead of byte `at` of a tile. What comes behind the end of the tile is
   `next`. */
#define SPECDEC__AHEAD 4096
SPECDEC__INLINE void specdec__x86_prefetch(int bytes, const unsigned char *tile, size_t at, size_t end,
                                           const unsigned char *next)
{
    const char *from = (const char *)(at + SPECDEC__AHEAD < end ? tile + at : next + at - end) + SPECDEC__AHEAD;
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < bytes; i += 64)
        _mm_prefetch(from + i, _MM_HINT_T0);
}

/* Where a granule of some columns begins. codes (column, 8), pairs and totals (column, granules of a block), scales
   (column). */
typedef struct specdec__x86_x {
    const int32_t *codes, *pairs;
    const float *scales, *totals;
} specdec__x86_x;

/* Where half `half` of the block at `at` begins; per: granules of a block. */
SPECDEC__INLINE specdec__x86_x specdec__x86_at(const specdec__columns *x, size_t at, int per, int half)
{
    specdec__x86_x from;

    from.codes = (const int32_t *)(const void *)(x->codes + at * 32) + half * 4;
    from.pairs = (per == 1 ? x->pair32 : x->pair16) + at * (size_t)per + half;
    from.totals = (per == 1 ? x->sum32 : x->sum16) + at * (size_t)per + half;
    from.scales = x->scale + at;
    __asm__("" : "+r"(from.codes), "+r"(from.pairs), "+r"(from.scales)); /* one address each, not one for every value */
    return from;
}
#endif /* x86_64 */

/* --- SSE4.1 with SSSE3 -------------------------------------------------------------------------------------------- */

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD)
#define SPECDEC__SSE41 __attribute__((target("sse4.1")))

/* Four float lanes. */
typedef __m128 specdec__sse41_v;

/* The operations: SPECDEC__LANE_OPERATIONS says what each computes. */
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_set(float a) { return _mm_set1_ps(a); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_add(__m128 a, __m128 b) { return _mm_add_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_sub(__m128 a, __m128 b) { return _mm_sub_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_mul(__m128 a, __m128 b) { return _mm_mul_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_div(__m128 a, __m128 b) { return _mm_div_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_max(__m128 a, __m128 b) { return _mm_max_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_min(__m128 a, __m128 b) { return _mm_min_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_scale2(__m128 a, __m128 shifter)
{
    return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(a), _mm_slli_epi32(_mm_castps_si128(shifter), 23)));
}

/* product + addend rounded to odd, from their rounded sum: where an error was lost, the sum is brought one unit towards
   zero if that is where the error points, and its last bit is set. Odd sums stay as they are. */
SPECDEC__SSE41 SPECDEC__INLINE __m128d specdec__sse41_to_odd(__m128d product, __m128d addend, __m128d sum)
{
    __m128d back = _mm_sub_pd(sum, product), zero = _mm_setzero_pd();
    __m128d error = _mm_add_pd(_mm_sub_pd(product, _mm_sub_pd(sum, back)), _mm_sub_pd(addend, back));
    __m128d inexact = _mm_or_pd(_mm_cmplt_pd(error, zero), _mm_cmpgt_pd(error, zero)); /* NaNs are not */
    __m128i odd = _mm_srli_epi64(_mm_castpd_si128(inexact), 63),
            opposite = _mm_srli_epi64(_mm_castpd_si128(_mm_xor_pd(error, sum)), 63);

    return _mm_castsi128_pd(_mm_or_si128(_mm_sub_epi64(_mm_castpd_si128(sum), _mm_and_si128(odd, opposite)), odd));
}

/* specdec__fma of four. */
SPECDEC__SSE41 static __attribute__((noinline)) __m128 specdec__sse41_fma_odd(__m128 a, __m128 b, __m128 c)
{
    __m128d low = _mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b)), low_addend = _mm_cvtps_pd(c);
    __m128d high = _mm_mul_pd(_mm_cvtps_pd(_mm_movehl_ps(a, a)), _mm_cvtps_pd(_mm_movehl_ps(b, b)));
    __m128d high_addend = _mm_cvtps_pd(_mm_movehl_ps(c, c));

    return _mm_movelh_ps(_mm_cvtpd_ps(specdec__sse41_to_odd(low, low_addend, _mm_add_pd(low, low_addend))),
                         _mm_cvtpd_ps(specdec__sse41_to_odd(high, high_addend, _mm_add_pd(high, high_addend))));
}

/* The same, fast: rounding to odd matters only to sums that lie half way between two floats, where the 29 bits that a
   float lacks are 1000..., or below the normal floats (2^-126), where it lacks more of them. */
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_madd(__m128 a, __m128 b, __m128 c)
{
    __m128d low = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b)), _mm_cvtps_pd(c));
    __m128d high = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(_mm_movehl_ps(a, a)), _mm_cvtps_pd(_mm_movehl_ps(b, b))),
                              _mm_cvtps_pd(_mm_movehl_ps(c, c)));
    __m128i ends = _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), 0x88));
    __m128i tops = _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), 0xDD));
    __m128i half = _mm_cmpeq_epi32(_mm_slli_epi32(ends, 3), _mm_set1_epi32((int)0x80000000u)), tiny;

    tops = _mm_and_si128(tops, _mm_set1_epi32(0x7FFFFFFF)); /* without the sign */
    tiny = _mm_and_si128(_mm_cmplt_epi32(tops, _mm_set1_epi32((1023 - 126) << 20)),
                         _mm_cmpgt_epi32(tops, _mm_setzero_si128()));
    if (__builtin_expect(_mm_movemask_epi8(_mm_or_si128(half, tiny)), 0))
        return specdec__sse41_fma_odd(a, b, c);
    return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
/* More operations of SPECDEC__LANE_OPERATIONS. */
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_load(const float *at) { return _mm_loadu_ps(at); }
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_store(float *at, __m128 a) { _mm_storeu_ps(at, a); }
SPECDEC__SSE41 SPECDEC__INLINE int32_t specdec__sse41_first_bits(__m128 a)
{
    return _mm_cvtsi128_si32(_mm_castps_si128(a));
}

/* Four signed bytes to floats. */
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_load_bytes(const int8_t *at)
{
    return _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_cvtsi32_si128((int)specdec__load_u32(at))));
}
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_load_bf16(const void *at)
{
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)at)));
}
/* Half floats to floats: the bits, moved up by 13, times 2^112; subnormals, too. Infinities and NaNs get the rest of
   their exponent. */
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_load_f16(const void *at)
{
    __m128i half = _mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)at));
    __m128i bits = _mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x7FFF)), 13);
    __m128i sign = _mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x8000)), 16);
    __m128i all_ones = _mm_and_si128(_mm_cmpgt_epi32(bits, _mm_set1_epi32(0x0F7FFFFF)), _mm_set1_epi32(0x7F800000));
    __m128 magnitude = _mm_mul_ps(_mm_castsi128_ps(bits), _mm_set1_ps(5.192296858534828e33f));

    return _mm_or_ps(magnitude, _mm_castsi128_ps(_mm_or_si128(sign, all_ones)));
}
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_store_f16(void *at, __m128 a)
{
    float lanes[4];
    int i;

    _mm_storeu_ps(lanes, a);
    for (i = 0; i < 4; i++)
        specdec__store_u16((unsigned char *)at + i * 2, specdec__f16_from_float(lanes[i]));
}
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_store_low_bytes(int8_t *at, __m128 a)
{
    __m128i bytes = _mm_shuffle_epi8(_mm_castps_si128(a), _mm_set1_epi32(0x0C080400));

    specdec__store_u32(at, (uint32_t)_mm_cvtsi128_si32(bytes));
}
SPECDEC__SSE41 SPECDEC__INLINE float specdec__sse41_sum(const __m128 *parts)
{
    __m128 y = _mm_add_ps(_mm_add_ps(parts[0], parts[2]), _mm_add_ps(parts[1], parts[3]));

    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
SPECDEC__SSE41 SPECDEC__INLINE float specdec__sse41_highest(const __m128 *parts)
{
    __m128 y = _mm_max_ps(_mm_max_ps(parts[0], parts[2]), _mm_max_ps(parts[1], parts[3]));

    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
SPECDEC__SSE41 SPECDEC__INLINE int32_t specdec__sse41_sum_codes(const int8_t *codes)
{
    __m128i high = _mm_set1_epi8((char)-128), v = _mm_loadu_si128((const __m128i *)(const void *)codes);
    __m128i sums = _mm_sad_epu8(_mm_xor_si128(v, high), _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 2) - 16 * 128;
}

#define SPECDEC__ISA sse41
#define SPECDEC__TARGET SPECDEC__SSE41
#define SPECDEC__LANES 4
#define SPECDEC__WIDTH 2
#include SPECDEC__FILE

/* Loads, stores and masks 16 bytes. */
SPECDEC__SSE41 SPECDEC__INLINE __m128i specdec__sse41_get(const void *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_put_bytes(void *at, __m128i v)
{
    _mm_storeu_si128((__m128i *)at, v);
}
SPECDEC__SSE41 SPECDEC__INLINE __m128i specdec__sse41_and(__m128i a, int mask)
{
    return _mm_and_si128(a, _mm_set1_epi8((char)mask));
}

/* Products of unsigned w (or signed, for SIGNED) and signed x, added up in twos in 16-bit lanes. So many steps may be
   added up there: 8 with 4-bit codes, 2 with 6-bit codes, 1 with 8-bit codes. All sums stay below 2^15, so nothing
   saturates. */
enum { SPECDEC__SSE41_4BIT, SPECDEC__SSE41_6BIT, SPECDEC__SSE41_SIGNED };

/* Products of codes w and activations x, added up in twos to 16-bit lanes. */
SPECDEC__SSE41 SPECDEC__INLINE __m128i specdec__sse41_product(int mode, __m128i w, __m128i x)
{
    return mode == SPECDEC__SSE41_SIGNED ? _mm_maddubs_epi16(_mm_abs_epi8(w), _mm_sign_epi8(x, w))
                                         : _mm_maddubs_epi16(w, x);
}

/* So many vectors (of 64 bytes) of nibbles to twice as many of codes, the low nibbles first. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_nibbles(const unsigned char *from, int vectors, int8_t *codes)
{
    int i;

    for (i = 0; i < vectors * 64; i += 16) {
        __m128i q = specdec__sse41_get(from + i);

        _mm_prefetch((const char *)from + SPECDEC__AHEAD + i, _MM_HINT_T0);
        specdec__sse41_put_bytes(codes + i, specdec__sse41_and(q, 15));
        specdec__sse41_put_bytes(codes + vectors * 64 + i, specdec__sse41_and(_mm_srli_epi16(q, 4), 15));
    }
}

/* scale (16) = the half floats of 16 rows. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_halves(const unsigned char *at, float *scale)
{
    int i;

    for (i = 0; i < 16; i += 4)
        _mm_storeu_ps(scale + i, specdec__sse41_load_f16(at + i * 2));
}

/* count scales (count, 16) = the half floats d (16), times sign, times signed bytes (count, 16). */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_scale_bytes(const unsigned char *d, float sign, const int8_t *bytes,
                                                               int count, float (*out)[SPECDEC__ROWS])
{
    int row, i;

    for (row = 0; row < 16; row += 4) {
        const __m128 scale = _mm_mul_ps(specdec__sse41_load_f16(d + row * 2), _mm_set1_ps(sign));

        for (i = 0; i < count; i++)
            _mm_storeu_ps(out[i] + row, _mm_mul_ps(scale, specdec__sse41_load_bytes(bytes + i * 16 + row)));
    }
}

/* Scales and codes + 8 of blocks of Q4_0 to a panel. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_codes_Q4_0(const unsigned char *tile, int blocks,
                                                              specdec__panel *panel)
{
    int b;

    for (b = 0; b < blocks; b++, tile += SPECDEC__TILE_BYTES(q4_0)) {
        specdec__sse41_halves(tile, panel->scale[b]);
        specdec__sse41_nibbles(tile + SPECDEC__TILE_AT(q4_0, nibbles), 4, panel->u.codes + b * 512);
    }
}

/* Scales and codes of blocks of Q8_0 to a panel. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_codes_Q8_0(const unsigned char *tile, int blocks,
                                                              specdec__panel *panel)
{
    int b, i;

    for (b = 0; b < blocks; b++, tile += SPECDEC__TILE_BYTES(q8_0)) {
        specdec__sse41_halves(tile, panel->scale[b]);
        for (i = 0; i < 512; i += 16) {
            _mm_prefetch((const char *)tile + SPECDEC__AHEAD + i, _MM_HINT_T0);
            specdec__sse41_put_bytes(panel->u.codes + b * 512 + i,
                                     specdec__sse41_get(tile + SPECDEC__TILE_AT(q8_0, codes) + i));
        }
    }
}

/* Scales, minimums and codes of a block of Q4_K to a panel. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_codes_Q4_K(const unsigned char *tile, specdec__panel *panel)
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q4_k, scales), *dmin = tile + SPECDEC__TILE_AT(q4_k, dmin);
    int8_t scales[128], minimums[128];
    int i;

    for (i = 0; i < 64; i += 16, packed += 16) {
        __m128i a = specdec__sse41_get(packed), b = specdec__sse41_get(packed + 64);
        __m128i c = specdec__sse41_get(packed + 128);

        specdec__sse41_put_bytes(scales + i, specdec__sse41_and(a, 63));
        specdec__sse41_put_bytes(scales + 64 + i,
                                 specdec__sse41_and(c, 15) | specdec__sse41_and(_mm_srli_epi16(a, 2), 48));
        specdec__sse41_put_bytes(minimums + i, specdec__sse41_and(b, 63));
        specdec__sse41_put_bytes(minimums + 64 + i, specdec__sse41_and(_mm_srli_epi16(c, 4), 15) |
                                                        specdec__sse41_and(_mm_srli_epi16(b, 2), 48));
    }
    specdec__sse41_scale_bytes(tile, 1, scales, 8, panel->scale);
    specdec__sse41_scale_bytes(dmin, -1, minimums, 8, panel->minimum);
    for (i = 0; i < 4; i++)
        specdec__sse41_nibbles(tile + SPECDEC__TILE_AT(q4_k, nibbles) + i * 512, 8, panel->u.codes + i * 1024);
}

/* Scales and codes + 32 of a block of Q6_K to a panel. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_codes_Q6_K(const unsigned char *tile, specdec__panel *panel)
{
    const unsigned char *low = tile + SPECDEC__TILE_AT(q6_k, nibbles), *high = tile + SPECDEC__TILE_AT(q6_k, crumbs);
    int8_t *codes = panel->u.codes;
    int half, s, i;

    specdec__sse41_scale_bytes(tile + SPECDEC__TILE_AT(q6_k, d), 1,
                               (const int8_t *)tile + SPECDEC__TILE_AT(q6_k, scales), 16, panel->scale);
    for (half = 0; half < 2; half++, low += 1024, high += 512)
        for (s = 0; s < 4; s++, codes += 512)
            for (i = 0; i < 512; i += 16) {
                __m128i q =
                    specdec__sse41_and(_mm_srli_epi16(specdec__sse41_get(low + s % 2 * 512 + i), s / 2 * 4), 15);
                __m128i h = specdec__sse41_and(_mm_srli_epi16(specdec__sse41_get(high + i), s * 2), 3);

                _mm_prefetch((const char *)low + SPECDEC__AHEAD + s % 2 * 512 + i, _MM_HINT_T0);
                specdec__sse41_put_bytes(codes + i, q | h << 4);
            }
}

/* Pairs of granules: the sum of the codes below, -bias above, so that madd(pair, (offset, sum of activation codes)) is
   what offset and bias add to a dot. small: the codes are unsigned, and those of a granule in one lane add up to at
   most a byte. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_pairs(int granule, int bias, int small, int blocks,
                                                         specdec__panel *panel)
{
    const __m128i ones = _mm_set1_epi32(0x01010101), words = _mm_set1_epi32(0x00010001),
                  above = _mm_set1_epi32(-65536 * bias);
    int vectors = granule / 4, k, r, i;

    for (k = 0; k < blocks * 32 / granule; k++)
        for (r = 0; r < 4; r++) {
            int8_t *codes = panel->u.codes + k * vectors * 64 + r * 16;
            __m128i sum = small ? specdec__sse41_get(codes) : _mm_setzero_si128();

            if (small) {
                for (i = 1; i < vectors; i++)
                    sum = _mm_add_epi8(sum, specdec__sse41_get(codes + i * 64));
                sum = specdec__sse41_product(SPECDEC__SSE41_4BIT, sum, ones);
            } else {
                for (i = 0; i < vectors; i++)
                    sum = _mm_add_epi16(sum, specdec__sse41_product(SPECDEC__SSE41_4BIT, ones,
                                                                    specdec__sse41_get(codes + i * 64)));
            }
            sum = _mm_add_epi32(_mm_madd_epi16(sum, words), _mm_set1_epi32(-granule * bias));
            specdec__sse41_put_bytes(&panel->pair[k][r * 4], (sum & _mm_set1_epi32(65535)) | above);
        }
}

/* A granule of a panel times columns of them: adds to sums (column, register) in 32-bit lanes. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_integers(int mode, int vectors, int columns, const int8_t *w,
                                                            const int32_t *x, __m128i (*sums)[4])
{
    const __m128i words = _mm_set1_epi32(0x00010001);
    const int step = mode == SPECDEC__SSE41_4BIT ? vectors : mode == SPECDEC__SSE41_6BIT ? 2 : 1;
    __m128i part[2][4], codes[4];
    int i, c, r;

    for (i = 0; i < vectors; i++) {
        SPECDEC__UNROLL
        for (r = 0; r < 4; r++)
            codes[r] = specdec__sse41_get(w + i * 64 + r * 16);
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            __m128i value = _mm_set1_epi32(x[c * 8 + i]);

            SPECDEC__UNROLL
            for (r = 0; r < 4; r++) {
                __m128i product = specdec__sse41_product(mode, codes[r], value);

                part[c][r] = i % step ? _mm_add_epi16(part[c][r], product) : product;
                if (i % step == step - 1)
                    sums[c][r] = _mm_add_epi32(sums[c][r], _mm_madd_epi16(part[c][r], words));
            }
        }
    }
}

/* sums (column, 16) += what granule k of a panel gives with its integers (column, register); per: granules of a
   block. */
SPECDEC__SSE41 SPECDEC__INLINE void
specdec__sse41_add_up(const float *scale, const float *minimum, const specdec__x86_x *from, int per, int columns,
                      __m128i (*integers)[4], float *sums)
{
    int c, r;

    for (c = 0; c < columns; c++)
        for (r = 0; r < 16; r += 4, sums += 4) {
            __m128 sum = _mm_loadu_ps(sums), by = _mm_mul_ps(_mm_loadu_ps(scale + r), _mm_set1_ps(from->scales[c]));

            sum = specdec__sse41_madd(by, _mm_cvtepi32_ps(integers[c][r / 4]), sum);
            if (minimum)
                sum = specdec__sse41_madd(_mm_loadu_ps(minimum + r), _mm_set1_ps(from->totals[c * per]), sum);
            _mm_storeu_ps(sums, sum);
        }
}

/* A panel times columns, 1 or 2 of them at once. */
SPECDEC__SSE41 SPECDEC__INLINE void
specdec__sse41_dot_columns(int mode, int granule, int has_minimum, int columns, const specdec__panel *panel, int blocks,
                           const specdec__columns *x, size_t at, float *sums)
{
    const int per = 32 / granule, vectors = granule / 4;
    int k, c, r;

    for (k = 0; k < blocks * per; k++) {
        const specdec__x86_x from = specdec__x86_at(x, at + (size_t)(k / per) * (size_t)x->n, per, k % per);
        __m128i integers[2][4];

        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            __m128i pair = _mm_set1_epi32(from.pairs[c * per]);

            SPECDEC__UNROLL
            for (r = 0; r < 4; r++)
                integers[c][r] = _mm_madd_epi16(specdec__sse41_get(&panel->pair[k][r * 4]), pair);
        }
        specdec__sse41_integers(mode, vectors, columns, panel->u.codes + k * vectors * 64, from.codes, integers);
        if (has_minimum)
            specdec__sse41_add_up(panel->scale[k], panel->minimum[k], &from, per, columns, integers, sums);
        else
            specdec__sse41_add_up(panel->scale[k], NULL, &from, per, columns, integers, sums);
    }
}

/* A panel times count columns, two at a time. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_dot(int mode, int granule, int has_minimum,
                                                       const specdec__panel *panel, int blocks,
                                                       const specdec__columns *x, size_t at, int count, float *sums)
{
    for (; count >= 2; count -= 2, at += 2, sums += 32)
        specdec__sse41_dot_columns(mode, granule, has_minimum, 2, panel, blocks, x, at, sums);
    if (count)
        specdec__sse41_dot_columns(mode, granule, has_minimum, 1, panel, blocks, x, at, sums);
}

/* The dots of a mode and a granule: without minimums (name) and with them (name_m), which share their machine code. */
#define SPECDEC__SSE41_DOT(name, name_m, mode, granule) \
    SPECDEC__SSE41 static SPECDEC__NOINLINE void \
    specdec__sse41_dots_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, int block, \
                               int column, int count, float *sums, int has_minimum) \
    { \
        const size_t at = (size_t)block * (size_t)x->n + (size_t)column; \
        specdec__sse41_dot(mode, granule, has_minimum, panel, blocks, x, at, count, sums); \
    } \
    SPECDEC__SSE41_DOT_OF(name, name, 0) \
    SPECDEC__SSE41_DOT_OF(name_m, name, 1)
#define SPECDEC__SSE41_DOT_OF(name, common, has_minimum) \
    static SPECDEC__UNUSED void specdec__sse41_dot_##name(const specdec__panel *panel, int blocks, \
                                                          const specdec__columns *x, int block, int column, \
                                                          int count, float *sums) \
    { \
        specdec__sse41_dots_##common(panel, blocks, x, block, column, count, sums, has_minimum); \
    }

SPECDEC__SSE41_DOT(4bit, 4bitm, SPECDEC__SSE41_4BIT, 32)
SPECDEC__SSE41_DOT(6bit, 6bitm, SPECDEC__SSE41_6BIT, 16)
SPECDEC__SSE41_DOT(16, 16m, SPECDEC__SSE41_SIGNED, 16)
SPECDEC__SSE41_DOT(32, 32m, SPECDEC__SSE41_SIGNED, 32)

/* Unpacks to pairs and to codes + bias where that fits 6 bits (Q4_0, Q4_K, Q6_K: multiplied as unsigned), else to
   codes. */
#define SPECDEC__SSE41_UNPACK(name, granule, bias, small, codes) \
    SPECDEC__SSE41 static void specdec__sse41_unpack_##name(const specdec__quant_type *type, \
                                                            const unsigned char *tile, int blocks, \
                                                            specdec__panel *panel) \
    { \
        (void)type; \
        codes; \
        specdec__sse41_pairs(granule, bias, small, blocks, panel); \
    }

SPECDEC__SSE41_UNPACK(Q4_0, 32, 8, 1, specdec__sse41_codes_Q4_0(tile, blocks, panel))
SPECDEC__SSE41_UNPACK(Q4_K, 32, 0, 1, specdec__sse41_codes_Q4_K(tile, panel))
SPECDEC__SSE41_UNPACK(Q6_K, 16, 32, 1, specdec__sse41_codes_Q6_K(tile, panel))
SPECDEC__SSE41_UNPACK(Q8_0, 32, 0, 0, specdec__sse41_codes_Q8_0(tile, blocks, panel))
SPECDEC__SSE41_UNPACK(any, type->granule, 0, 0, specdec__unpack_codes(type, tile, blocks, panel))
#endif /* x86_64 */

/* --- AVX2 with FMA and F16C, and AVX-VNNI ------------------------------------------------------------------------- */

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC_KERNELS_APART)

/* Sixteen float lanes in two registers. */
typedef struct specdec__avx2_v {
    __m256 a, b;
} specdec__avx2_v;

#define SPECDEC__AVX2_LANES(name, parameters, low, high) \
    SPECDEC__AVX2 SPECDEC__INLINE specdec__avx2_v specdec__avx2_##name parameters \
    { \
        specdec__avx2_v r; \
        r.a = low; \
        r.b = high; \
        return r; \
    }

SPECDEC__AVX2_LANES(load, (const float *at), _mm256_loadu_ps(at), _mm256_loadu_ps(at + 8))
SPECDEC__AVX2_LANES(set, (float x), _mm256_set1_ps(x), _mm256_set1_ps(x))
SPECDEC__AVX2_LANES(add, (specdec__avx2_v x, specdec__avx2_v y), _mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b))
SPECDEC__AVX2_LANES(sub, (specdec__avx2_v x, specdec__avx2_v y), _mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b))
SPECDEC__AVX2_LANES(mul, (specdec__avx2_v x, specdec__avx2_v y), _mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b))
SPECDEC__AVX2_LANES(div, (specdec__avx2_v x, specdec__avx2_v y), _mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b))
SPECDEC__AVX2_LANES(max, (specdec__avx2_v x, specdec__avx2_v y), _mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b))
SPECDEC__AVX2_LANES(min, (specdec__avx2_v x, specdec__avx2_v y), _mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b))
SPECDEC__AVX2_LANES(madd, (specdec__avx2_v x, specdec__avx2_v y, specdec__avx2_v z), _mm256_fmadd_ps(x.a, y.a, z.a),
                    _mm256_fmadd_ps(x.b, y.b, z.b))
SPECDEC__AVX2_LANES(load_f16, (const void *at), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at)),
                    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at + 1)))

/* a * 2^n in eight lanes, where shifter is n + 1.5 * 2^23. */
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_scale2_half(__m256 a, __m256 shifter)
{
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(shifter), 23)));
}
SPECDEC__AVX2_LANES(scale2, (specdec__avx2_v x, specdec__avx2_v shifter), specdec__avx2_scale2_half(x.a, shifter.a),
                    specdec__avx2_scale2_half(x.b, shifter.b))
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_from_bf16(const __m128i *at)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), 16));
}
SPECDEC__AVX2_LANES(load_bf16, (const void *at), specdec__avx2_from_bf16((const __m128i *)at),
                    specdec__avx2_from_bf16((const __m128i *)at + 1))
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_from_bytes(const int8_t *at)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at)));
}
SPECDEC__AVX2_LANES(load_bytes, (const int8_t *at), specdec__avx2_from_bytes(at), specdec__avx2_from_bytes(at + 8))
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store(float *at, specdec__avx2_v x)
{
    _mm256_storeu_ps(at, x.a);
    _mm256_storeu_ps(at + 8, x.b);
}
/* The low byte of each of 16 lanes. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store_low_bytes(int8_t *at, specdec__avx2_v x)
{
    const __m256i byte = _mm256_set1_epi32(255);
    __m256i words = _mm256_packus_epi32(_mm256_and_si256(_mm256_castps_si256(x.a), byte),
                                        _mm256_and_si256(_mm256_castps_si256(x.b), byte));

    words = _mm256_permute4x64_epi64(words, 0xD8);
    _mm_storeu_si128((__m128i *)(void *)at,
                     _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
/* The canonical sum of 16 lanes. */
SPECDEC__AVX2 SPECDEC__INLINE float specdec__avx2_sum(const specdec__avx2_v *parts)
{
    const specdec__avx2_v x = parts[0];
    __m256 b = _mm256_add_ps(x.a, x.b);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
/* The largest of 16 lanes. */
SPECDEC__AVX2 SPECDEC__INLINE float specdec__avx2_highest(const specdec__avx2_v *parts)
{
    const specdec__avx2_v x = parts[0];
    __m256 b = _mm256_max_ps(x.a, x.b);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
/* The sum of 16 codes. */
SPECDEC__AVX2 SPECDEC__INLINE int32_t specdec__avx2_sum_codes(const int8_t *codes)
{
    return specdec__sse41_sum_codes(codes);
}
/* The bits of lane 0. */
SPECDEC__AVX2 SPECDEC__INLINE int32_t specdec__avx2_first_bits(specdec__avx2_v x)
{
    return _mm_cvtsi128_si32(_mm_castps_si128(_mm256_castps256_ps128(x.a)));
}
/* 16 lanes as half floats. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store_f16(void *at, specdec__avx2_v x)
{
    _mm_storeu_si128((__m128i *)at, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)at + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#define SPECDEC__ISA avx2
#define SPECDEC__TARGET SPECDEC__AVX2
#define SPECDEC__LANES 16
#define SPECDEC__WIDTH 1
#include SPECDEC__FILE

/* Weight codes are unpacked in registers, of 8 rows at a time, and multiplied by all columns. The type is a constant in
   all that follows: every type gets its own machine code. */

/* Loads, stores and masks 32 bytes. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_get(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_put_bytes(void *at, __m256i v)
{
    _mm256_storeu_si256((__m256i *)at, v);
}
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_and(__m256i a, int mask)
{
    return _mm256_and_si256(a, _mm256_set1_epi8((char)mask));
}

/* Eight half floats to floats. */
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_halves(const unsigned char *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at));
}

/* Types whose codes are 8 bits, signed. */
SPECDEC__INLINE int specdec__avx2_is_signed(int type) { return specdec__x86_limit(type) == 255; }

/* value in every byte whose bit n is set. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_bit(__m256i a, int n, int value)
{
    __m256i found = _mm256_sub_epi8(_mm256_setzero_si256(), specdec__avx2_and(a, 1 << n));
    return _mm256_min_epu8(found, _mm256_set1_epi8((char)value));
}

/* Bit n of every byte to bit 4, for a constant n; the other bits are for the caller to mask. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_bit_to_4(__m256i a, int n)
{
    return n < 4 ? _mm256_slli_epi16(a, 4 - n) : _mm256_srli_epi16(a, n - 4);
}

/* Blocks of 32 in nibbles; at: the nibbles, bits: the fifth bits. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_codes_32(const unsigned char *at, const unsigned char *bits,
                                                          __m256i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        __m256i q = specdec__avx2_get(at + i * 64);

        u[i] = specdec__avx2_and(q, 15);
        u[i + 4] = specdec__avx2_and(_mm256_srli_epi16(q, 4), 15);
    }
    if (bits) {
        __m256i high = specdec__avx2_get(bits);

        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm256_or_si256(u[i], specdec__avx2_and(specdec__avx2_bit_to_4(high, i), 16));
    }
}

/* The values of IQ4_NL and IQ4_XS in place of nibbles. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_iq4(__m256i u[8])
{
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)specdec__quant_iq4_values));
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        u[i] = _mm256_shuffle_epi8(table, u[i]);
}

/* One of the runs of 32 that share bytes: `bits` bits of them, from bit `run * bits` on. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_codes_run(const unsigned char *at, int run, int bits, __m256i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        u[i] = specdec__avx2_and(_mm256_srli_epi16(specdec__avx2_get(at + i * 64), run * bits), (1 << bits) - 1);
}

/* Eighths of Q4_K and Q5_K: nibbles of eight vectors, low ones in the even eighths; bits: the fifth bits. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_codes_k(const unsigned char *at, const unsigned char *bits, int eighth,
                                                         __m256i u[8])
{
    int i;

    at += eighth / 2 * 512;
    if (eighth % 2)
        specdec__avx2_codes_run(at, 1, 4, u);
    else
        specdec__avx2_codes_run(at, 0, 4, u);
    if (bits) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm256_or_si256(u[i], specdec__avx2_bit(specdec__avx2_get(bits + i * 64), eighth, 16));
    }
}

/* One of the four runs of 32 in 128 values of Q6_K. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_codes_6(const unsigned char *low, const unsigned char *high, int run,
                                                         __m256i u[8])
{
    int i;

    specdec__avx2_codes_run(low + run % 2 * 512, run / 2, 4, u);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        __m256i h = specdec__avx2_get(high + i * 64);

        h = run < 2 ? _mm256_slli_epi16(h, 4 - 2 * run) : _mm256_srli_epi16(h, 2 * run - 4);
        u[i] = _mm256_or_si256(u[i], specdec__avx2_and(h, 48));
    }
}

/* Eighths of Q6_K: four bits and two bits make a code. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_codes_q6_k(const unsigned char *at, int eighth, __m256i u[8])
{
    const unsigned char *low = at + SPECDEC__TILE_AT(q6_k, nibbles) + eighth / 4 * 1024;
    const unsigned char *high = at + SPECDEC__TILE_AT(q6_k, crumbs) + eighth / 4 * 512;

    switch (eighth % 4) {
    case 0: specdec__avx2_codes_6(low, high, 0, u); break;
    case 1: specdec__avx2_codes_6(low, high, 1, u); break;
    case 2: specdec__avx2_codes_6(low, high, 2, u); break;
    default: specdec__avx2_codes_6(low, high, 3, u); break;
    }
}

/* Eighths of Q2_K and Q3_K: two bits of eight vectors; bits: the third bits. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_codes_crumbs(const unsigned char *at, const unsigned char *bits,
                                                              int eighth, __m256i u[8])
{
    int i;

    at += eighth / 4 * 512;
    switch (eighth % 4) {
    case 0: specdec__avx2_codes_run(at, 0, 2, u); break;
    case 1: specdec__avx2_codes_run(at, 1, 2, u); break;
    case 2: specdec__avx2_codes_run(at, 2, 2, u); break;
    default: specdec__avx2_codes_run(at, 3, 2, u); break;
    }
    if (bits) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm256_or_si256(u[i], specdec__avx2_bit(specdec__avx2_get(bits + i * 64), eighth, 4));
    }
}

/* Eight vectors of codes, plus their bias where they are less than 8 bits: values 32*block .. 32*block + 31 of 8
   rows. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_codes(int type, const unsigned char *tile, const specdec__panel *panel,
                                                       int block, int half, __m256i u[8])
{
    const unsigned char *all = tile + half * 32, *at = all + (size_t)block * (size_t)specdec__x86_span(type);
    int i;

    switch (type) {
    SPECDEC__X86_CODES(avx2, all, at, block, u)
    default: /* Q8_0, or stored by specdec__avx2_factors */
        at = type == SPECDEC__TYPE_Q8_0 ? at + SPECDEC__TILE_AT(q8_0, codes)
                                        : (const unsigned char *)panel->u.codes + (size_t)block * 512 + half * 32;
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = specdec__avx2_get(at + i * 64);
        break;
    }
}

/* The scales of a tile of 256 values are d times whole numbers: those of Q2_K, Q4_K and Q5_K, and the minimums' after
   them. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_factors_q2_k(const unsigned char *tile, int8_t *scales,
                                                              int8_t *minimums)
{
    int i;

    for (i = 0; i < 256; i += 32) {
        __m256i both = specdec__avx2_get(tile + SPECDEC__TILE_AT(q2_k, scales) + i);

        specdec__avx2_put_bytes(scales + i, specdec__avx2_and(both, 15));
        specdec__avx2_put_bytes(minimums + i, specdec__avx2_and(_mm256_srli_epi16(both, 4), 15));
    }
}

/* Factors of Q4_K and Q5_K: 6 bits each, of scales and of minimums. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_factors_k(const unsigned char *tile, int8_t *scales, int8_t *minimums)
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q4_k, scales); /* and of Q5_K */
    int i;

    for (i = 0; i < 64; i += 32) {
        __m256i a = specdec__avx2_get(packed + i), b = specdec__avx2_get(packed + 64 + i);
        __m256i c = specdec__avx2_get(packed + 128 + i);
        __m256i top = specdec__avx2_and(_mm256_srli_epi16(a, 2), 48);

        specdec__avx2_put_bytes(scales + i, specdec__avx2_and(a, 63));
        specdec__avx2_put_bytes(scales + 64 + i, _mm256_or_si256(specdec__avx2_and(c, 15), top));
        top = specdec__avx2_and(_mm256_srli_epi16(b, 2), 48);
        specdec__avx2_put_bytes(minimums + i, specdec__avx2_and(b, 63));
        specdec__avx2_put_bytes(minimums + 64 + i,
                                _mm256_or_si256(specdec__avx2_and(_mm256_srli_epi16(c, 4), 15), top));
    }
}

/* Factors of Q3_K: 6 bits less 32. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_factors_q3_k(const unsigned char *tile, int8_t *scales)
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q3_k, scales);
    int i, half;

    for (half = 0; half < 64; half += 32) {
        const __m256i high = specdec__avx2_get(packed + 128 + half);

        SPECDEC__UNROLL
        for (i = 0; i < 4; i++) { /* two scales at once */
            __m256i two = specdec__avx2_get(packed + i % 2 * 64 + half);
            __m256i low = specdec__avx2_and(_mm256_srli_epi16(two, i / 2 * 4), 15);
            __m256i top =
                specdec__avx2_and(i < 2 ? _mm256_slli_epi16(high, 4 - 2 * i) : _mm256_srli_epi16(high, 2 * i - 4), 48);

            specdec__avx2_put_bytes(scales + i * 64 + half,
                                    _mm256_sub_epi8(_mm256_or_si256(low, top), _mm256_set1_epi8(32)));
        }
    }
}

/* Factors of IQ4_XS: 6 bits less 32. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_factors_iq4_xs(const unsigned char *tile, int8_t *scales)
{
    const __m128i *lows = (const __m128i *)(const void *)(tile + SPECDEC__TILE_AT(iq4_xs, low));
    const __m128i *highs = (const __m128i *)(const void *)(tile + SPECDEC__TILE_AT(iq4_xs, high));
    const __m128i three = _mm_set1_epi16(3);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        __m128i low = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128(lows + i / 2), i % 2 * 4), _mm_set1_epi8(15));
        __m128i first = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128(highs), 2 * i), three);
        __m128i second = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128(highs + 1), 2 * i), three);
        __m128i top = _mm_slli_epi16(_mm_packus_epi16(first, second), 4);

        _mm_storeu_si128((__m128i *)(void *)(scales + i * 16), _mm_sub_epi8(_mm_or_si128(low, top), _mm_set1_epi8(32)));
    }
}

/* Four times seven sign bits to four bytes, the eighth making their number even. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_signs(__m256i word)
{
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i signs = _mm256_and_si256(word, _mm256_set1_epi32(0x7F));

    signs = _mm256_or_si256(signs, _mm256_and_si256(_mm256_slli_epi32(word, 1), _mm256_set1_epi32(0x7F00)));
    signs = _mm256_or_si256(signs, _mm256_and_si256(_mm256_slli_epi32(word, 2), _mm256_set1_epi32(0x7F0000)));
    signs = _mm256_or_si256(signs, _mm256_and_si256(_mm256_slli_epi32(word, 3), _mm256_set1_epi32(0x7F000000)));
    return _mm256_or_si256(
        signs,
        _mm256_shuffle_epi8(parity, specdec__avx2_and(_mm256_xor_si256(signs, _mm256_srli_epi16(signs, 4)), 15)));
}

/* Magnitude indices (8 bits: four times two) and signs (4 bits) of 32-bit lanes to four codes. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_points(__m256i magnitudes, __m256i signs)
{
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(8, 25, 43, 0, -8, -25, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0));

    magnitudes = _mm256_or_si256(magnitudes, _mm256_slli_epi32(magnitudes, 12));
    magnitudes = _mm256_or_si256(magnitudes, _mm256_slli_epi32(magnitudes, 6));
    signs = _mm256_or_si256(signs, _mm256_slli_epi32(signs, 14));
    signs = _mm256_slli_epi32(_mm256_or_si256(signs, _mm256_slli_epi32(signs, 7)), 2);
    return _mm256_shuffle_epi8(table, _mm256_or_si256(specdec__avx2_and(magnitudes, 3), specdec__avx2_and(signs, 4)));
}

/* IQ2_XXS takes many steps to unpack, so its codes and scales are stored in the panel. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_expand_iq2_xxs(const unsigned char *tile, specdec__panel *panel)
{
    const uint16_t *grid = specdec__quant_iq2_xxs_grid;
    uint32_t points[2][16]; /* of the groups 0 and 1 of 8 values of a row, and of 2 and 3 */
    int g, row, half, i;

    for (g = 0; g < 8; g++) {
        const unsigned char *groups = tile + SPECDEC__TILE_AT(iq2_xxs, groups) + g * 128;

        for (row = 0; row < 16; row++, groups += 4) {
            points[0][row] = grid[groups[0]] | (uint32_t)grid[groups[1]] << 16;
            points[1][row] = grid[groups[2]] | (uint32_t)grid[groups[3]] << 16;
        }
        for (half = 0; half < 2; half++) {
            __m256i word = specdec__avx2_get(groups + half * 32), signs = specdec__avx2_signs(word), scale;

            SPECDEC__UNROLL
            for (i = 0; i < 8; i++) {
                __m256i magnitudes = _mm256_srli_epi32(specdec__avx2_get(points[i / 4] + half * 8), i % 4 * 8);
                __m256i codes =
                    specdec__avx2_points(_mm256_and_si256(magnitudes, _mm256_set1_epi32(255)),
                                         _mm256_and_si256(_mm256_srli_epi32(signs, i * 4), _mm256_set1_epi32(15)));

                specdec__avx2_put_bytes(panel->u.codes + g * 512 + i * 64 + half * 32, codes);
            }
            scale = _mm256_or_si256(_mm256_slli_epi32(_mm256_srli_epi32(word, 28), 1), _mm256_set1_epi32(1));
            _mm256_storeu_ps(panel->scale[g] + half * 8,
                             _mm256_mul_ps(specdec__avx2_halves(tile + half * 16),
                                           _mm256_mul_ps(_mm256_set1_ps(0.125f), _mm256_cvtepi32_ps(scale))));
        }
    }
}

/* Factors of the scales (granule, 16) and, 256 further, of the minimums of 256 values; room for them. IQ2_XXS is stored
   in the panel. */
SPECDEC__AVX2 SPECDEC__INLINE const int8_t *specdec__avx2_factors(int type, const unsigned char *tile, int8_t *room,
                                                                  specdec__panel *panel)
{
    switch (type) {
    case SPECDEC__TYPE_Q2_K: specdec__avx2_factors_q2_k(tile, room, room + 256); break;
    case SPECDEC__TYPE_Q3_K: specdec__avx2_factors_q3_k(tile, room); break;
    case SPECDEC__TYPE_Q4_K: case SPECDEC__TYPE_Q5_K: specdec__avx2_factors_k(tile, room, room + 256); break;
    case SPECDEC__TYPE_Q6_K: return (const int8_t *)tile + SPECDEC__TILE_AT(q6_k, scales);
    case SPECDEC__TYPE_IQ4_XS: specdec__avx2_factors_iq4_xs(tile, room); break;
    case SPECDEC__TYPE_IQ2_XXS: specdec__avx2_expand_iq2_xxs(tile, panel); break;
    default: break; /* has none */
    }
    return room;
}

/* Where the scale d of 256 values stands in a tile; dmin comes after it. */
SPECDEC__INLINE size_t specdec__x86_d(int type)
{
    switch (type) {
    case SPECDEC__TYPE_Q2_K: return SPECDEC__TILE_AT(q2_k, d);
    case SPECDEC__TYPE_Q3_K: return SPECDEC__TILE_AT(q3_k, d);
    case SPECDEC__TYPE_Q6_K: return SPECDEC__TILE_AT(q6_k, d);
    default: return 0;
    }
}

/* d of 8 rows of 256 values: of the scales and of the minimums. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_scales(int type, const unsigned char *tile, int half, __m256 d[2])
{
    const unsigned char *at = tile + specdec__x86_d(type) + half * 16;

    d[0] = d[1] = _mm256_setzero_ps();
    if (!specdec__x86_is_block_32(type))
        d[0] = specdec__avx2_halves(at);
    if (!specdec__x86_is_block_32(type) && specdec__x86_has_minimum(type))
        d[1] = _mm256_sub_ps(_mm256_set1_ps(-0.0f), specdec__avx2_halves(at + 2 * SPECDEC__ROWS));
}

/* 256 values of 8 rows of a tile, or what is left of them. */
typedef struct specdec__avx2_rows {
    const unsigned char *tile;
    const int8_t *factors; /* see specdec__avx2_factors */
    __m256 d[2];           /* see specdec__avx2_scales */
    int half;              /* 0: the first 8 rows, 1: the others */
} specdec__avx2_rows;

/* The scales, or with which = 1 the minimums, of a granule. */
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_granule_scale(int type, int which, const specdec__avx2_rows *rows,
                                                                 const specdec__panel *panel, int granule)
{
    const int8_t *factors = rows->factors + which * 256 + granule * 16 + rows->half * 8;

    if (specdec__x86_is_block_32(type))
        return specdec__avx2_halves(rows->tile + (size_t)granule * (size_t)specdec__x86_span(type) +
                                    which * 2 * SPECDEC__ROWS + rows->half * 16);
    if (type == SPECDEC__TYPE_IQ2_XXS)
        return _mm256_loadu_ps(panel->scale[granule] + rows->half * 8);
    return _mm256_mul_ps(rows->d[which], specdec__avx2_from_bytes(factors));
}

/* What makes a pair (see specdec__avx512_pair) of the sum of a granule's unsigned codes. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_bias_pair(int type, __m256i sum)
{
    const int bias = specdec__x86_bias(type), below = -bias * specdec__x86_granule(type);

    return _mm256_add_epi16(sum, _mm256_set1_epi32(-bias * 65536 + (below & 65535)));
}

/* The pair of a granule of count vectors. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_pair(int type, const __m256i *u, int count)
{
    const __m256i ones = _mm256_set1_epi8(1), words = _mm256_set1_epi16(1);
    const int wide = specdec__avx2_is_signed(type);
    __m256i sum = wide ? _mm256_maddubs_epi16(ones, u[0]) : u[0];
    int i;

    SPECDEC__UNROLL
    for (i = 1; i < count; i++)
        sum = wide ? _mm256_add_epi16(sum, _mm256_maddubs_epi16(ones, u[i])) : _mm256_add_epi8(sum, u[i]);
    if (wide)
        return _mm256_and_si256(_mm256_madd_epi16(sum, words), _mm256_set1_epi32(65535));
    return specdec__avx2_bias_pair(type, _mm256_madd_epi16(_mm256_maddubs_epi16(sum, ones), words));
}

/* sums (column) = dots of vectors of a granule with columns. Products are added up in 16 bits as long as that cannot
   saturate. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_sums(int type, int columns, int vectors, const __m256i *u,
                                                      const int32_t *x, __m256i *sums)
{
    const int is_signed = specdec__avx2_is_signed(type),
              step = is_signed ? 1 : specdec__min_int(32767 / (254 * specdec__x86_limit(type)), vectors);
    __m256i part[2], product;
    int i, c;

    SPECDEC__UNROLL
    for (i = 0; i < vectors; i++) {
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            product = _mm256_set1_epi32(x[c * 8 + i]);
            product = is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(u[i]), _mm256_sign_epi8(product, u[i]))
                                : _mm256_maddubs_epi16(u[i], product);
            if (i % step)
                product = _mm256_add_epi16(part[c], product);
            SPECDEC__KEEP(product); /* or compilers add up in another order, which needs more registers */
            part[c] = product;
            if (i % step == step - 1) {
                product = _mm256_madd_epi16(product, _mm256_set1_epi16(1));
                sums[c] = i < step ? product : _mm256_add_epi32(sums[c], product);
            }
        }
    }
}

/* Rarer types are unpacked to codes, unsigned or signed, and their pairs, for AVX2 and AVX-VNNI alike. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack(int type, const unsigned char *tile, int blocks,
                                                        specdec__panel *panel)
{
    const int granule = specdec__x86_granule(type), per = 32 / granule, span = specdec__x86_span(type);
    specdec__avx2_rows rows;
    int8_t room[512];
    __m256i u[8];
    int b, g, i, to;

    rows.tile = tile;
    rows.factors = specdec__x86_is_block_32(type) ? room : specdec__avx2_factors(type, tile, room, panel);
    for (rows.half = 0; rows.half < 2; rows.half++) {
        to = rows.half * 8;
        specdec__avx2_scales(type, tile, rows.half, rows.d);
        for (b = 0; b < blocks; b++) {
            for (i = rows.half * 64; i < span; i += 128)
                _mm_prefetch((const char *)tile + b * span + SPECDEC__AHEAD + i, _MM_HINT_T0);
            specdec__avx2_codes(type, tile, panel, b, rows.half, u);
            for (i = 0; i < 8; i++)
                specdec__avx2_put_bytes(panel->u.codes + b * 512 + i * 64 + to * 4, u[i]);
            for (g = b * per; g < (b + 1) * per; g++) {
                specdec__avx2_put_bytes(panel->pair[g] + to, specdec__avx2_pair(type, u + g % per * 4, granule / 4));
                _mm256_storeu_ps(panel->scale[g] + to, specdec__avx2_granule_scale(type, 0, &rows, panel, g));
                if (specdec__x86_has_minimum(type))
                    _mm256_storeu_ps(panel->minimum[g] + to, specdec__avx2_granule_scale(type, 1, &rows, panel, g));
            }
        }
    }
}

SPECDEC__X86_UNPACKED(SPECDEC__X86_UNPACK, avx2)

/* The pairs of a panel whose codes are signed, by granule. */
SPECDEC__AVX2 static void specdec__avx2_panel_pairs(int granule, int blocks, specdec__panel *panel)
{
    const int vectors = granule / 4;
    const int8_t *codes = panel->u.codes;
    __m256i u[8];
    int g, half, i;

    for (g = 0; g < blocks * 8 / vectors; g++, codes += vectors * 64)
        for (half = 0; half < 2; half++) {
            for (i = 0; i < vectors; i++)
                u[i] = specdec__avx2_get(codes + i * 64 + half * 32);
            specdec__avx2_put_bytes(panel->pair[g] + half * 8,
                                    specdec__avx2_pair(SPECDEC__X86_PANEL_32_SIGNED, u, vectors));
        }
}

/* Any type, by its decoder: codes as they are, and their pairs, for AVX2 and AVX-VNNI alike. */
SPECDEC__AVX2 static void specdec__avx2_unpack_any(const specdec__quant_type *type, const unsigned char *tile,
                                                   int blocks, specdec__panel *panel)
{
    specdec__unpack_codes(type, tile, blocks, panel);
    specdec__avx2_panel_pairs(type->granule, blocks, panel);
}

/* 32 values of 16 rows whose codes are points of a grid: points (row), two a word, of 8 or 4 values each; signs (row),
   a bit a value or seven bits for eight of them. */
typedef struct specdec__x86_group {
    uint32_t points[4][16], signs[16];
} specdec__x86_group;

/* Two points of a grid, side by side. */
SPECDEC__INLINE uint32_t specdec__x86_points(const uint16_t *grid, uint32_t first, uint32_t second)
{
    return grid[first] | (uint32_t)grid[second] << 16;
}

/* Group g of a row of IQ2_XS. */
SPECDEC__INLINE void specdec__x86_group_iq2_xs(const unsigned char *tile, int g, int row, specdec__x86_group *out)
{
    const unsigned char *at = tile + SPECDEC__TILE_AT(iq2_xs, words) + g * 128 + row * 4;
    uint32_t a = specdec__load_u32(at), b = specdec__load_u32(at + 64);

    out->points[0][row] = specdec__x86_points(specdec__quant_iq2_xs_grid, a & 511, a >> 16 & 511);
    out->points[1][row] = specdec__x86_points(specdec__quant_iq2_xs_grid, b & 511, b >> 16 & 511);
    out->signs[row] = (a >> 9 & 127) | a >> 25 << 7 | (b >> 9 & 127) << 14 | b >> 25 << 21;
}

/* Group g of a row of IQ2_S. */
SPECDEC__INLINE void specdec__x86_group_iq2_s(const unsigned char *tile, int g, int row, specdec__x86_group *out)
{
    const uint16_t *grid = specdec__quant_iq2_s_grid;
    uint32_t low = specdec__load_u32(tile + SPECDEC__TILE_AT(iq2_s, index) + g * 64 + row * 4);
    uint32_t high = tile[SPECDEC__TILE_AT(iq2_s, high) + (size_t)(g / 4 * 64 + row * 4 + g % 4)];

    out->points[0][row] = specdec__x86_points(grid, (low & 255) | (high & 3) << 8, (low >> 8 & 255) | (high & 12) << 6);
    out->points[1][row] =
        specdec__x86_points(grid, (low >> 16 & 255) | (high & 48) << 4, low >> 24 | (high & 192) << 2);
    out->signs[row] = specdec__load_u32(tile + SPECDEC__TILE_AT(iq2_s, signs) + g * 64 + row * 4);
}

/* IQ3_XXS and IQ3_S: the indices stand at the same place; high: the bits above the eighth, one a point. */
SPECDEC__INLINE void specdec__x86_group_iq3(const uint16_t *grid, const unsigned char *tile, uint32_t high, int g,
                                            int row, specdec__x86_group *out)
{
    const unsigned char *at = tile + SPECDEC__TILE_AT(iq3_s, index) + g * 128 + row * 4;
    int i;

    for (i = 0; i < 4; i++, high >>= 2) {
        uint32_t two = specdec__load_u16(at + i / 2 * 64 + i % 2 * 2);
        out->points[i][row] = specdec__x86_points(grid, (two & 255) | (high & 1) << 8, two >> 8 | (high & 2) << 7);
    }
}

/* Group g of a tile of a type. */
SPECDEC__INLINE void specdec__x86_group_of(uint32_t type, const unsigned char *tile, int g, specdec__x86_group *out)
{
    const unsigned char *high = tile + SPECDEC__TILE_AT(iq3_s, high) + g / 4 * 64 + g % 4;
    int row;

    if (type == SPECDEC__TYPE_IQ2_XS)
        for (row = 0; row < SPECDEC__ROWS; row++)
            specdec__x86_group_iq2_xs(tile, g, row, out);
    else if (type == SPECDEC__TYPE_IQ2_S)
        for (row = 0; row < SPECDEC__ROWS; row++)
            specdec__x86_group_iq2_s(tile, g, row, out);
    else if (type == SPECDEC__TYPE_IQ3_XXS)
        for (row = 0; row < SPECDEC__ROWS; row++)
            specdec__x86_group_iq3(specdec__quant_iq3_xxs_grid, tile, 0, g, row, out);
    else
        for (row = 0; row < SPECDEC__ROWS; row++)
            specdec__x86_group_iq3(specdec__quant_iq3_s_grid, tile, high[row * 4], g, row, out);
    if (type == SPECDEC__TYPE_IQ3_XXS)
        memcpy(out->signs, tile + SPECDEC__TILE_AT(iq3_xxs, words) + g * 64, sizeof out->signs);
    if (type == SPECDEC__TYPE_IQ3_S)
        memcpy(out->signs, tile + SPECDEC__TILE_AT(iq3_s, signs) + g * 64, sizeof out->signs);
}

/* Magnitude indices (16 bits: four times four) and signs (4 bits) of 32-bit lanes to four codes; table: 8 magnitudes,
   and the same negative. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_points_iq3(__m256i table, __m256i magnitudes, __m256i signs)
{
    magnitudes =
        _mm256_and_si256(_mm256_or_si256(magnitudes, _mm256_slli_epi32(magnitudes, 8)), _mm256_set1_epi32(0x00FF00FF));
    magnitudes = _mm256_or_si256(magnitudes, _mm256_slli_epi32(magnitudes, 4));
    signs = _mm256_or_si256(signs, _mm256_slli_epi32(signs, 14));
    signs = _mm256_slli_epi32(_mm256_or_si256(signs, _mm256_slli_epi32(signs, 7)), 3);
    return _mm256_shuffle_epi8(table, _mm256_or_si256(specdec__avx2_and(magnitudes, 7), specdec__avx2_and(signs, 8)));
}

/* The codes of a group to a panel's. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_put_group(uint32_t type, const specdec__x86_group *group,
                                                           int8_t *codes)
{
    const int twos = type == SPECDEC__TYPE_IQ2_XS || type == SPECDEC__TYPE_IQ2_S;
    const int sevens = type == SPECDEC__TYPE_IQ2_XS || type == SPECDEC__TYPE_IQ3_XXS;
    const __m128i odd = _mm_setr_epi8(1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15);
    const __m128i fours = _mm_setr_epi8(4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62);
    const __m256i table = _mm256_broadcastsi128_si256(type == SPECDEC__TYPE_IQ3_S ? odd : fours);
    int half, i;

    for (half = 0; half < 16; half += 8, codes += 32) {
        __m256i signs = specdec__avx2_get(group->signs + half), points, sign;

        signs = sevens ? specdec__avx2_signs(signs) : signs;
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++) {
            points = specdec__avx2_get(group->points[twos ? i / 4 : i / 2] + half);
            points = twos ? _mm256_and_si256(_mm256_srli_epi32(points, i % 4 * 8), _mm256_set1_epi32(255))
                          : _mm256_and_si256(_mm256_srli_epi32(points, i % 2 * 16), _mm256_set1_epi32(65535));
            sign = _mm256_and_si256(_mm256_srli_epi32(signs, i * 4), _mm256_set1_epi32(15));
            specdec__avx2_put_bytes(codes + i * 64, twos ? specdec__avx2_points(points, sign)
                                                         : specdec__avx2_points_iq3(table, points, sign));
        }
    }
}

/* scale (16) = d of a tile times factor times 2 * n + 1, n: the four bits from bit shift on of words (16). */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_scale_odd(const unsigned char *tile, const unsigned char *words,
                                                           int shift, float factor, float *scale)
{
    int half;

    for (half = 0; half < 2; half++) {
        __m256i n = _mm256_srl_epi32(specdec__avx2_get(words + half * 32), _mm_cvtsi32_si128(shift));

        n = _mm256_and_si256(_mm256_add_epi32(n, n), _mm256_set1_epi32(30));
        n = _mm256_or_si256(n, _mm256_set1_epi32(1));
        _mm256_storeu_ps(scale + half * 8, _mm256_mul_ps(specdec__avx2_halves(tile + half * 16),
                                                         _mm256_mul_ps(_mm256_set1_ps(factor), _mm256_cvtepi32_ps(n))));
    }
}

/* 256 values of a type whose codes are points of a grid: codes and scales. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_expand_grid(uint32_t type, const unsigned char *tile,
                                                             specdec__panel *panel)
{
    specdec__x86_group group;
    int g;

    for (g = 0; g < 8; g++) {
        specdec__x86_group_of(type, tile, g, &group);
        specdec__avx2_put_group(type, &group, panel->u.codes + g * 512);
        if (type == SPECDEC__TYPE_IQ3_XXS)
            specdec__avx2_scale_odd(tile, tile + SPECDEC__TILE_AT(iq3_xxs, words) + g * 64, 28, 0.25f, panel->scale[g]);
        else if (type == SPECDEC__TYPE_IQ3_S)
            specdec__avx2_scale_odd(tile, tile + SPECDEC__TILE_AT(iq3_s, scales), g * 4, 1, panel->scale[g]);
    }
    for (g = 0; g < 16 && (type == SPECDEC__TYPE_IQ2_XS || type == SPECDEC__TYPE_IQ2_S); g++) {
        size_t scales =
            type == SPECDEC__TYPE_IQ2_XS ? SPECDEC__TILE_AT(iq2_xs, scales) : SPECDEC__TILE_AT(iq2_s, scales);
        specdec__avx2_scale_odd(tile, tile + scales + g / 8 * 64, g % 8 * 4, 0.125f, panel->scale[g]);
    }
}

/* The same for any of these types. Each has machine code of its own, but only once: AVX-512 uses it, too. */
SPECDEC__AVX2 static __attribute__((noinline)) void specdec__avx2_expand(const specdec__quant_type *type,
                                                                         const unsigned char *tile,
                                                                         specdec__panel *panel)
{
    switch (type->number) {
    case SPECDEC__TYPE_IQ2_XS: specdec__avx2_expand_grid(SPECDEC__TYPE_IQ2_XS, tile, panel); break;
    case SPECDEC__TYPE_IQ2_S: specdec__avx2_expand_grid(SPECDEC__TYPE_IQ2_S, tile, panel); break;
    case SPECDEC__TYPE_IQ3_XXS: specdec__avx2_expand_grid(SPECDEC__TYPE_IQ3_XXS, tile, panel); break;
    default: specdec__avx2_expand_grid(SPECDEC__TYPE_IQ3_S, tile, panel); break;
    }
}

/* Unpacks a tile of a type whose codes are points of a grid: codes, scales and pairs. */
SPECDEC__AVX2 static void specdec__avx2_unpack_grid(const specdec__quant_type *type, const unsigned char *tile,
                                                    int blocks, specdec__panel *panel)
{
    specdec__avx2_expand(type, tile, panel);
    specdec__avx2_panel_pairs(type->granule, blocks, panel);
}

/* sum += four products of unsigned u and signed x in every 32-bit lane: AVX-VNNI's instruction, written out because no
   function for AVX2 may call its intrinsic. */
#ifdef SPECDEC__AVXVNNI
#define SPECDEC__AVX2_DPBUSD(sum, u, x) \
    __asm__("%{vex%} vpdpbusd {%2, %1, %0|%0, %1, %2}" : "+x"(sum) : "x"(u), "x"(x))
#else
#define SPECDEC__AVX2_DPBUSD(sum, u, x) ((void)(u), (void)(x))
#endif

/* The same as specdec__avx2_sums, with AVX-VNNI. Each column has two chains of sums: half the wait for the last
   product. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_vnni_sums(int columns, int vectors, const __m256i *u, const int32_t *x,
                                                           __m256i *sums)
{
    __m256i odd[2];
    int i, c;

    SPECDEC__UNROLL
    for (c = 0; c < columns; c++)
        sums[c] = odd[c] = _mm256_setzero_si256();
    SPECDEC__UNROLL
    for (i = 0; i < vectors; i += 2)
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            SPECDEC__AVX2_DPBUSD(sums[c], u[i], _mm256_set1_epi32(x[c * 8 + i]));
            SPECDEC__AVX2_DPBUSD(odd[c], u[i + 1], _mm256_set1_epi32(x[c * 8 + i + 1]));
        }
    SPECDEC__UNROLL
    for (c = 0; c < columns; c++)
        sums[c] = _mm256_add_epi32(sums[c], odd[c]);
}

/* The pair of a granule of count vectors of unsigned codes, with AVX-VNNI. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_vnni_pair(int type, const __m256i *u, int count)
{
    __m256i sum = _mm256_setzero_si256(), rest = u[0];
    int i;

    SPECDEC__UNROLL
    for (i = 1; i < count; i++)
        if (specdec__avx2_is_signed(type))
            SPECDEC__AVX2_DPBUSD(sum, u[i], _mm256_set1_epi8(1));
        else
            rest = _mm256_add_epi8(rest, u[i]);
    SPECDEC__AVX2_DPBUSD(sum, rest, _mm256_set1_epi8(1));
    return specdec__avx2_bias_pair(type, sum);
}

/* Signed codes become unsigned ones for AVX-VNNI: 128 is added. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_unsigned(int type, int vnni, __m256i codes)
{
    return vnni && specdec__avx2_is_signed(type) ? _mm256_xor_si256(codes, _mm256_set1_epi8((char)-128)) : codes;
}

/* acc (column) += a granule times 1 or 2 columns. vnni: with AVX-VNNI? A constant, here and below. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_fused_columns(int type, int vnni, int columns, const __m256i *u,
                                                               __m256i pair, __m256 scale, __m256 minimum,
                                                               const specdec__x86_x *x, int column, __m256 *acc)
{
    const int granule = specdec__x86_granule(type), per = 32 / granule;
    __m256i sums[2];
    int c;

    if (vnni)
        specdec__avx2_vnni_sums(columns, granule / 4, u, x->codes + (size_t)column * 8, sums);
    else
        specdec__avx2_sums(type, columns, granule / 4, u, x->codes + (size_t)column * 8, sums);
    SPECDEC__UNROLL
    for (c = 0; c < columns; c++) {
        __m256 by = _mm256_mul_ps(scale, _mm256_set1_ps(x->scales[column + c]));

        sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(pair, _mm256_set1_epi32(x->pairs[(column + c) * per])));
        acc[c] = _mm256_fmadd_ps(by, _mm256_cvtepi32_ps(sums[c]), acc[c]);
        if (specdec__x86_has_minimum(type))
            acc[c] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(x->totals[(column + c) * per]), acc[c]);
    }
}

/* A block times columns. `columns` is a constant: 1 or 2 of them go to acc (column); with 0, count of them go to sums
   (column, 16). */
SPECDEC__AVX2 SPECDEC__INLINE void
specdec__avx2_fused_block(int type, int vnni, const specdec__avx2_rows *rows, const specdec__panel *panel, int block,
                          const specdec__columns *x, size_t at, int columns, int count, __m256 *acc, float *sums)
{
    const int granule = specdec__x86_granule(type), per = 32 / granule, half = rows->half;
    __m256i u[8];
    int g, c, i;

    specdec__avx2_codes(type, rows->tile, panel, block, half, u);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        u[i] = specdec__avx2_unsigned(type, vnni, u[i]);
        SPECDEC__KEEP(u[i]);
    }
    SPECDEC__UNROLL
    for (g = 0; g < per; g++) {
        const specdec__x86_x from = specdec__x86_at(x, at, per, g);
        const __m256i *codes = u + g * 4;
        __m256i pair =
            vnni ? specdec__avx2_vnni_pair(type, codes, granule / 4) : specdec__avx2_pair(type, codes, granule / 4);
        __m256 scale = specdec__avx2_granule_scale(type, 0, rows, panel, block * per + g), minimum = scale;

        if (specdec__x86_has_minimum(type))
            minimum = specdec__avx2_granule_scale(type, 1, rows, panel, block * per + g);
        if (columns)
            specdec__avx2_fused_columns(type, vnni, columns, codes, pair, scale, minimum, &from, 0, acc);
        else
            for (c = 0; c < count; c++) {
                acc[0] = _mm256_loadu_ps(sums + c * SPECDEC__ROWS);
                specdec__avx2_fused_columns(type, vnni, 1, codes, pair, scale, minimum, &from, c, acc);
                _mm256_storeu_ps(sums + c * SPECDEC__ROWS, acc[0]);
            }
    }
}

/* 256 values of a tile, from byte `from` on, or what is left of it: 8 rows, then the others. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_fused_run(int type, int vnni, const specdec__tiles *tiles, int t,
                                                           size_t from, size_t end, int blocks, specdec__panel *panel,
                                                           const specdec__columns *x, size_t at, int columns, int count,
                                                           float *sums)
{
    const int share = specdec__x86_span(type) / 2;
    specdec__avx2_rows rows;
    int8_t room[512];
    int b, c;

    rows.tile = tiles->tile[t] + from;
    rows.factors = specdec__x86_is_block_32(type) ? room : specdec__avx2_factors(type, rows.tile, room, panel);
    for (rows.half = 0; rows.half < 2; rows.half++, sums += 8) {
        __m256 acc[2];

        specdec__avx2_scales(type, rows.tile, rows.half, rows.d);
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            acc[c] = _mm256_loadu_ps(sums + c * SPECDEC__ROWS);
        for (b = 0; b < blocks; b++) {
            specdec__x86_prefetch(share, tiles->tile[t], from + (size_t)((rows.half * blocks + b) * share), end,
                                  tiles->next[t]);
            specdec__avx2_fused_block(type, vnni, &rows, panel, b, x, at + (size_t)b * (size_t)x->n, columns, count,
                                      acc, sums);
        }
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            _mm256_storeu_ps(sums + c * SPECDEC__ROWS, acc[c]);
    }
}

/* 256 values of one tile, then of the other: two streams bring more bytes from memory than one. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_fused(int type, int vnni, const specdec__tiles *tiles, int blocks,
                                                       specdec__panel *panels, const specdec__columns *x, int block,
                                                       int column, int columns, int count, float *const *sums)
{
    const size_t span = (size_t)specdec__x86_span(type), end = (size_t)blocks * span;
    int from, run, t;

    for (from = 0; from < blocks; from += run) {
        const size_t at = (size_t)(block + from) * (size_t)x->n + (size_t)column;

        run = specdec__min_int(SPECDEC__PANEL / 32, blocks - from);
        for (t = 0; t < 2 && tiles->tile[t]; t++) {
            if (block + from == 0)
                memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
            specdec__avx2_fused_run(type, vnni, tiles, t, (size_t)from * span, end, run, panels, x, at, columns, count,
                                    sums[t]);
        }
    }
}

/* What multiply does (see specdec__multiply_function): one column and two have machine code of their own. */
SPECDEC__AVX2 SPECDEC__INLINE void
specdec__avx2_multiply(int type, int vnni, const specdec__tiles *tiles, int blocks, specdec__panel *panels,
                       const specdec__columns *x, int block, int column, int count, float *const *sums)
{
    switch (count) {
    case 1: specdec__avx2_fused(type, vnni, tiles, blocks, panels, x, block, column, 1, 1, sums); break;
    case 2: specdec__avx2_fused(type, vnni, tiles, blocks, panels, x, block, column, 2, 2, sums); break;
    default: specdec__avx2_fused(type, vnni, tiles, blocks, panels, x, block, column, 0, count, sums); break;
    }
}

/* sums (column, 16) += a panel times 1 or 2 columns. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_dot_columns(int type, int vnni, int columns,
                                                             const specdec__panel *panel, int blocks,
                                                             const specdec__columns *x, size_t at, float *sums)
{
    const int granule = specdec__x86_granule(type), per = 32 / granule, vectors = granule / 4;
    int half, k, c, i;

    for (half = 0; half < 16; half += 8) {
        __m256 acc[2];

        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            acc[c] = _mm256_loadu_ps(sums + c * SPECDEC__ROWS + half);
        for (k = 0; k < blocks * per; k++) {
            const specdec__x86_x from = specdec__x86_at(x, at + (size_t)(k / per) * (size_t)x->n, per, k % per);
            __m256 scale = _mm256_loadu_ps(panel->scale[k] + half), minimum = scale;
            __m256i u[8], pair = specdec__avx2_get(panel->pair[k] + half);

            SPECDEC__UNROLL
            for (i = 0; i < vectors; i++)
                u[i] = specdec__avx2_unsigned(type, vnni,
                                              specdec__avx2_get(panel->u.codes + (k * vectors + i) * 64 + half * 4));
            if (vnni && specdec__avx2_is_signed(type)) /* the pairs of signed codes have no bias */
                pair = _mm256_or_si256(pair, _mm256_set1_epi32(-128 * 65536));
            if (specdec__x86_has_minimum(type))
                minimum = _mm256_loadu_ps(panel->minimum[k] + half);
            specdec__avx2_fused_columns(type, vnni, columns, u, pair, scale, minimum, &from, 0, acc);
        }
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            _mm256_storeu_ps(sums + c * SPECDEC__ROWS + half, acc[c]);
    }
}

/* The same, two columns at a time. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_dot(int type, int vnni, const specdec__panel *panel, int blocks,
                                                     const specdec__columns *x, size_t at, int count, float *sums)
{
    for (; count >= 2; count -= 2, at += 2, sums += 2 * SPECDEC__ROWS)
        specdec__avx2_dot_columns(type, vnni, 2, panel, blocks, x, at, sums);
    if (count)
        specdec__avx2_dot_columns(type, vnni, 1, panel, blocks, x, at, sums);
}

/* Functions with these constants: what the tables of AVX2 and AVX-VNNI hold. */
#define SPECDEC__AVX2_MULTIPLY(isa, vnni, number) \
    SPECDEC__AVX2 static void \
    specdec__##isa##_multiply_##number(const specdec__tiles *tiles, int blocks, specdec__panel *panels, \
                                       const specdec__columns *x, int block, int column, int count, \
                                       float *const *sums) \
    { \
        specdec__avx2_multiply(SPECDEC__TYPE_##number, vnni, tiles, blocks, panels, x, block, column, count, sums); \
    }
#define SPECDEC__AVX2_DOT(isa, vnni, name, type) \
    SPECDEC__AVX2 static void \
    specdec__##isa##_dot_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, int block, \
                                int column, int count, float *sums) \
    { \
        const size_t at = (size_t)block * (size_t)x->n + (size_t)column; \
        specdec__avx2_dot(type, vnni, panel, blocks, x, at, count, sums); \
    }
#define SPECDEC__AVX2_MULTIPLIES(isa, vnni) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q4_0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q8_0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q4_K) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q6_K) \
    SPECDEC__AVX2_DOT(isa, vnni, 16, SPECDEC__X86_PANEL_16) \
    SPECDEC__AVX2_DOT(isa, vnni, 16_signed, SPECDEC__X86_PANEL_16_SIGNED) \
    SPECDEC__AVX2_DOT(isa, vnni, 16m, SPECDEC__X86_PANEL_16M) \
    SPECDEC__AVX2_DOT(isa, vnni, 32, SPECDEC__X86_PANEL_32) \
    SPECDEC__AVX2_DOT(isa, vnni, 32m, SPECDEC__X86_PANEL_32M) \
    SPECDEC__AVX2_DOT(isa, vnni, 32_signed, SPECDEC__X86_PANEL_32_SIGNED)

SPECDEC__AVX2_MULTIPLIES(avx2, 0)
#ifdef SPECDEC__AVXVNNI
SPECDEC__AVX2_MULTIPLIES(avxvnni, 1)
#endif
#endif /* x86_64 */

/* --- AVX-512 with VNNI -------------------------------------------------------------------------------------------- */

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC_KERNELS_APART)
typedef __m512 specdec__avx512_v;

/* The operations: SPECDEC__LANE_OPERATIONS says what each computes. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_load(const float *at) { return _mm512_loadu_ps(at); }
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_store(float *at, __m512 a) { _mm512_storeu_ps(at, a); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_set(float a) { return _mm512_set1_ps(a); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_add(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_sub(__m512 a, __m512 b) { return _mm512_sub_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_mul(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_div(__m512 a, __m512 b) { return _mm512_div_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_madd(__m512 a, __m512 b, __m512 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_max(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_min(__m512 a, __m512 b) { return _mm512_min_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_scale2(__m512 a, __m512 shifter)
{
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(_mm512_castps_si512(shifter), 23)));
}
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_store_low_bytes(int8_t *at, __m512 a)
{
    _mm_storeu_si128((__m128i *)(void *)at, _mm512_cvtepi32_epi8(_mm512_castps_si512(a)));
}
SPECDEC__AVX512 SPECDEC__INLINE float specdec__avx512_sum(const __m512 *parts)
{
    const __m512 a = parts[0];
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
SPECDEC__AVX512 SPECDEC__INLINE float specdec__avx512_highest(const __m512 *parts)
{
    const __m512 a = parts[0];
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
SPECDEC__AVX512 SPECDEC__INLINE int32_t specdec__avx512_sum_codes(const int8_t *codes)
{
    __m128i high = _mm_set1_epi8((char)-128), v = _mm_loadu_si128((const __m128i *)(const void *)codes);
    __m128i sums = _mm_sad_epu8(_mm_xor_si128(v, high), _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 2) - 16 * 128;
}
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_load_f16(const void *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
}
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_load_bf16(const void *at)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16));
}
SPECDEC__AVX512 SPECDEC__INLINE int32_t specdec__avx512_first_bits(__m512 a)
{
    return _mm_cvtsi128_si32(_mm512_castsi512_si128(_mm512_castps_si512(a)));
}
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_store_f16(void *at, __m512 a)
{
    _mm256_storeu_si256((__m256i *)at, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Weight codes stay packed in the tile and are unpacked in registers: up to 6 columns tile after tile, more with two
   tiles side by side. The type is a constant in all that follows: every type gets its own machine code. */

/* 64 bytes. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_load_bytes(const unsigned char *at)
{
    return _mm512_loadu_si512(at);
}
/* 16 half floats to floats. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_halves(const unsigned char *at)
{
    return specdec__avx512_load_f16(at);
}

/* Sixteen bytes to floats. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_bytes(const int8_t *at)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)at)));
}

/* The bits of mask in every byte. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_and(__m512i a, int mask)
{
    return _mm512_and_si512(a, _mm512_set1_epi8((char)mask));
}

/* The bits of mask from a, the others from b. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_select(int mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)mask), a, b, 0xCA);
}

/* value in every byte whose bit n is set. (On Zen 5, shifts by a variable count keep the multipliers busy; this does
   not.) */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_bit(__m512i a, int n, int value)
{
    __m512i found = _mm512_sub_epi8(_mm512_setzero_si512(), specdec__avx512_and(a, 1 << n));
    return _mm512_min_epu8(found, _mm512_set1_epi8((char)value));
}

/* The same for a constant n and bit 4; the other bits are for the caller to mask. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_bit_to_4(__m512i a, int n)
{
    switch (n) {
    case 0: return _mm512_slli_epi16(a, 4);
    case 1: return _mm512_slli_epi16(a, 3);
    case 2: return _mm512_slli_epi16(a, 2);
    case 3: return _mm512_slli_epi16(a, 1);
    case 4: return a;
    case 5: return _mm512_srli_epi16(a, 1);
    case 6: return _mm512_srli_epi16(a, 2);
    default: return _mm512_srli_epi16(a, 3);
    }
}

/* Eight vectors of nibbles from four: the low ones first. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_nibbles(const unsigned char *at, __m512i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        __m512i q = specdec__avx512_load_bytes(at + i * 64);

        SPECDEC__KEEP(q);
        u[i] = specdec__avx512_and(q, 15);
        u[i + 4] = specdec__avx512_and(_mm512_srli_epi16(q, 4), 15);
    }
}

/* The values of IQ4_NL and IQ4_XS, plus 128, in place of nibbles. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_iq4(__m512i u[8])
{
    const __m512i table = _mm512_xor_si512(_mm512_set1_epi8((char)-128), _mm512_broadcast_i32x4(
        _mm_loadu_si128((const __m128i *)(const void *)specdec__quant_iq4_values)));
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        u[i] = _mm512_shuffle_epi8(table, u[i]);
}

/* Blocks of 32 in nibbles: the unsigned codes; at: the nibbles, bits: the fifth bits. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_codes_32(const unsigned char *at, const unsigned char *bits,
                                                              __m512i u[8])
{
    int i;

    specdec__avx512_nibbles(at, u);
    if (bits) {
        __m512i high = specdec__avx512_load_bytes(bits);

        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm512_or_si512(u[i], specdec__avx512_and(specdec__avx512_bit_to_4(high, i), 16));
    }
}

/* Eighths of Q4_K and Q5_K: nibbles of eight vectors, low ones in the even eighths; bits: the fifth bits. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_codes_k(const unsigned char *at, const unsigned char *bits,
                                                             int eighth, __m512i u[8])
{
    int i;

    at += eighth / 2 * 512;
    if (eighth % 2) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = specdec__avx512_and(_mm512_srli_epi16(specdec__avx512_load_bytes(at + i * 64), 4), 15);
    } else {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = specdec__avx512_and(specdec__avx512_load_bytes(at + i * 64), 15);
    }
    if (bits) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm512_or_si512(u[i], specdec__avx512_bit(specdec__avx512_load_bytes(bits + i * 64), eighth, 16));
    }
}

/* One of the four runs of 32 in 128 values of Q6_K; run is a constant. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_codes_6(const unsigned char *low, const unsigned char *high,
                                                             int run, __m512i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        __m512i q = specdec__avx512_load_bytes(low + run % 2 * 512 + i * 64),
                h = specdec__avx512_load_bytes(high + i * 64);

        if (run >= 2)
            q = _mm512_srli_epi16(q, 4);
        if (run == 0)
            h = _mm512_slli_epi16(h, 4);
        if (run == 1)
            h = _mm512_slli_epi16(h, 2);
        if (run == 3)
            h = _mm512_srli_epi16(h, 2);
        u[i] = specdec__avx512_and(specdec__avx512_select(15, q, h), 63);
    }
}

/* Eighths of Q6_K: four bits and two bits make a code. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_codes_q6_k(const unsigned char *tile, int eighth, __m512i u[8])
{
    const unsigned char *low = tile + SPECDEC__TILE_AT(q6_k, nibbles) + eighth / 4 * 1024;
    const unsigned char *high = tile + SPECDEC__TILE_AT(q6_k, crumbs) + eighth / 4 * 512;

    switch (eighth % 4) {
    case 0: specdec__avx512_codes_6(low, high, 0, u); break;
    case 1: specdec__avx512_codes_6(low, high, 1, u); break;
    case 2: specdec__avx512_codes_6(low, high, 2, u); break;
    default: specdec__avx512_codes_6(low, high, 3, u); break;
    }
}

/* One of the four runs of 32 in 128 values of Q2_K or Q3_K. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_codes_2(const unsigned char *at, int run, __m512i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        __m512i q = specdec__avx512_load_bytes(at + i * 64);

        if (run == 1)
            q = _mm512_srli_epi16(q, 2);
        if (run == 2)
            q = _mm512_srli_epi16(q, 4);
        if (run == 3)
            q = _mm512_srli_epi16(q, 6);
        u[i] = specdec__avx512_and(q, 3);
    }
}

/* Eighths of Q2_K and Q3_K: two bits of eight vectors; bits: the third bits. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_codes_crumbs(const unsigned char *at, const unsigned char *bits,
                                                                  int eighth, __m512i u[8])
{
    int i;

    at += eighth / 4 * 512;
    switch (eighth % 4) {
    case 0: specdec__avx512_codes_2(at, 0, u); break;
    case 1: specdec__avx512_codes_2(at, 1, u); break;
    case 2: specdec__avx512_codes_2(at, 2, u); break;
    default: specdec__avx512_codes_2(at, 3, u); break;
    }
    if (bits) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm512_or_si512(u[i], specdec__avx512_bit(specdec__avx512_load_bytes(bits + i * 64), eighth, 4));
    }
}

/* Eight vectors of unsigned codes: values 32*block .. 32*block + 31 of 16 rows; a tile of 256 values or of blocks of
   32. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_codes(int type, const unsigned char *tile,
                                                           const specdec__panel *panel, int block, __m512i u[8])
{
    const unsigned char *at =
        type < SPECDEC__TYPE_COUNT ? tile + (size_t)block * (size_t)specdec__x86_span(type) : tile;
    int i;

    switch (type) {
    SPECDEC__X86_CODES(avx512, tile, at, block, u)
    case SPECDEC__TYPE_Q8_0:
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm512_xor_si512(specdec__avx512_load_bytes(at + SPECDEC__TILE_AT(q8_0, codes) + i * 64),
                                    _mm512_set1_epi8((char)-128));
        break;
    default: /* they lie in the panel */
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm512_loadu_si512(panel->u.codes + (size_t)block * 512 + i * 64);
        break;
    }
}

/* The pair of a granule of count vectors: the sum of its codes in the low half, -bias in the high half, so that
   madd(pair, (offset, sum of activation codes)) is what offset and bias add to a dot of unsigned codes. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_pair(int type, const __m512i *u, int count)
{
    const int bias = specdec__x86_bias(type);
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum = _mm512_set1_epi32(-4 * count * bias), rest = u[0];
    int i;

    SPECDEC__UNROLL
    for (i = 1; i < count; i++)
        if (specdec__x86_limit(type) * count <= 255)
            rest = _mm512_add_epi8(rest, u[i]);
        else
            sum = _mm512_dpbusd_epi32(sum, u[i], ones);
    sum = _mm512_dpbusd_epi32(sum, rest, ones);
    return _mm512_mask_blend_epi16(0xAAAAAAAA, sum, _mm512_set1_epi16((short)-bias));
}

/* count scales = d times signed bytes (count, 16). */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_scale_bytes(__m512 d, const int8_t *bytes, int count,
                                                                 float (*out)[SPECDEC__ROWS])
{
    int i;

    for (i = 0; i < count; i++)
        _mm512_storeu_ps(out[i], _mm512_mul_ps(d, specdec__avx512_bytes(bytes + i * 16)));
}

/* -a. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_negative(__m512 a)
{
    return _mm512_sub_ps(_mm512_set1_ps(-0.0f), a);
}

/* Q4_K and Q5_K: d, dmin, 12 bytes of 6-bit scales and minimums. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_scales_k(const unsigned char *tile, specdec__panel *panel)
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q4_k, scales), *dmin = tile + SPECDEC__TILE_AT(q4_k, dmin);
    const __m512i a = specdec__avx512_load_bytes(packed), b = specdec__avx512_load_bytes(packed + 64);
    const __m512i c = specdec__avx512_load_bytes(packed + 128);
    int8_t scales[128], minimums[128];

    _mm512_storeu_si512(scales, specdec__avx512_and(a, 63));
    _mm512_storeu_si512(scales + 64, specdec__avx512_and(specdec__avx512_select(15, c, _mm512_srli_epi16(a, 2)), 63));
    _mm512_storeu_si512(minimums, specdec__avx512_and(b, 63));
    _mm512_storeu_si512(minimums + 64, specdec__avx512_and(specdec__avx512_select(15, _mm512_srli_epi16(c, 4),
                                                                                  _mm512_srli_epi16(b, 2)),
                                                           63));
    specdec__avx512_scale_bytes(specdec__avx512_halves(tile), scales, 8, panel->scale);
    specdec__avx512_scale_bytes(specdec__avx512_negative(specdec__avx512_halves(dmin)), minimums, 8, panel->minimum);
}

/* Sixteen bits for each of 32 bytes of IQ2_XXS, in 16-bit lanes. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_grid(__m512i index)
{
    const uint16_t *grid = specdec__quant_iq2_xxs_grid;
    __m512i found = _mm512_permutex2var_epi16(_mm512_loadu_si512(grid), index, _mm512_loadu_si512(grid + 32));
    int i;

    SPECDEC__UNROLL
    for (i = 1; i < 4; i++) {
        __m512i part =
            _mm512_permutex2var_epi16(_mm512_loadu_si512(grid + i * 64), index, _mm512_loadu_si512(grid + i * 64 + 32));
        found = _mm512_mask_mov_epi16(found,
                                      _mm512_cmpeq_epi16_mask(_mm512_srli_epi16(index, 6), _mm512_set1_epi16((short)i)),
                                      part);
    }
    return found;
}

/* Four times seven sign bits to four bytes, the eighth making their number even. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_signs(__m512i word)
{
    const __m512i parity =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m512i signs = _mm512_and_si512(word, _mm512_set1_epi32(0x7F));

    signs = _mm512_or_si512(signs, _mm512_and_si512(_mm512_slli_epi32(word, 1), _mm512_set1_epi32(0x7F00)));
    signs = _mm512_or_si512(signs, _mm512_and_si512(_mm512_slli_epi32(word, 2), _mm512_set1_epi32(0x7F0000)));
    signs = _mm512_or_si512(signs, _mm512_and_si512(_mm512_slli_epi32(word, 3), _mm512_set1_epi32(0x7F000000)));
    return _mm512_or_si512(
        signs,
        _mm512_shuffle_epi8(parity, specdec__avx512_and(_mm512_xor_si512(signs, _mm512_srli_epi16(signs, 4)), 15)));
}

/* Magnitude indices (8 bits: four times two) and signs (4 bits) of 32-bit lanes to four codes + 128. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_points(__m512i magnitudes, __m512i signs)
{
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_setr_epi8(-120, -103, -85, -128, 120, 103, 85, -128, 0, 0, 0, 0, 0, 0, 0, 0));

    magnitudes = _mm512_or_si512(magnitudes, _mm512_slli_epi32(magnitudes, 12));
    magnitudes = _mm512_or_si512(magnitudes, _mm512_slli_epi32(magnitudes, 6));
    signs = _mm512_or_si512(signs, _mm512_slli_epi32(signs, 14));
    signs = _mm512_slli_epi32(_mm512_or_si512(signs, _mm512_slli_epi32(signs, 7)), 2);
    return _mm512_shuffle_epi8(table,
                               _mm512_or_si512(specdec__avx512_and(magnitudes, 3), specdec__avx512_and(signs, 4)));
}

/* The codes of a group of 32 values of IQ2_XXS. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_put_iq2_xxs(const unsigned char *group, int8_t *codes)
{
    const __m512i byte = _mm512_set1_epi32(255), nibble = _mm512_set1_epi32(15), bytes = _mm512_set1_epi16(255);
    const __m512i index = specdec__avx512_load_bytes(group), word = specdec__avx512_load_bytes(group + 64);
    const __m512i even = specdec__avx512_grid(_mm512_and_si512(index, bytes));
    const __m512i odd = specdec__avx512_grid(_mm512_srli_epi16(index, 8)), signs = specdec__avx512_signs(word);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        __m512i points = _mm512_srl_epi32(i / 2 % 2 ? odd : even, _mm_cvtsi32_si128(i / 4 * 16 + i % 2 * 8));
        __m512i sign = _mm512_srl_epi32(signs, _mm_cvtsi32_si128(i * 4));

        points = specdec__avx512_points(_mm512_and_si512(points, byte), _mm512_and_si512(sign, nibble));
        _mm512_storeu_si512(codes + i * 64, points);
    }
}

/* IQ2_XXS takes too many steps to unpack in every pass, so its codes are stored in the panel. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_expand_iq2_xxs(const unsigned char *tile, specdec__panel *panel)
{
    const unsigned char *groups = tile + SPECDEC__TILE_AT(iq2_xxs, groups);
    int g;

    for (g = 0; g < 8; g++) {
        specdec__avx512_put_iq2_xxs(groups + g * 128, panel->u.codes + g * 512);
        specdec__avx2_scale_odd(tile, groups + g * 128 + 64, 28, 0.125f, panel->scale[g]);
    }
}

/* Scales and minimums of 256 values; for IQ2_XXS the codes too. All but Q4_K and Q5_K share the factors of AVX2. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_scales(int type, const unsigned char *tile, specdec__panel *panel)
{
    const unsigned char *d = tile + specdec__x86_d(type);
    const int count = 256 / specdec__x86_granule(type);

    if (type == SPECDEC__TYPE_Q4_K || type == SPECDEC__TYPE_Q5_K) {
        specdec__avx512_scales_k(tile, panel);
    } else if (type == SPECDEC__TYPE_IQ2_XXS) {
        specdec__avx512_expand_iq2_xxs(tile, panel);
    } else {
        int8_t room[512];
        const int8_t *factors = specdec__avx2_factors(type, tile, room, panel);

        specdec__avx512_scale_bytes(specdec__avx512_halves(d), factors, count, panel->scale);
        if (specdec__x86_has_minimum(type))
            specdec__avx512_scale_bytes(specdec__avx512_negative(specdec__avx512_halves(d + 2 * SPECDEC__ROWS)),
                                        factors + 256, count, panel->minimum);
    }
}

#define SPECDEC__AVX512_FEW 6 /* columns that are taken tile after tile */

/* A block of a tile, in registers as far as there are enough; pair, scale, minimum (granule). */
typedef struct specdec__avx512_block {
    __m512i codes[8], pair[2];
    __m512 scale[2], minimum[2];
} specdec__avx512_block;

/* Unpacks block `block` of a tile, or of a panel, into registers. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_take(int type, const unsigned char *tile, int block,
                                                          const specdec__panel *panel, specdec__avx512_block *out)
{
    const int granule = specdec__x86_granule(type), per = 32 / granule, halves = specdec__x86_is_block_32(type);
    const int unpacked = type >= SPECDEC__X86_PANEL_32;
    const unsigned char *own = unpacked ? tile : tile + (size_t)block * (size_t)specdec__x86_span(type);
    int i;

    specdec__avx512_codes(type, tile, panel, block, out->codes);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        SPECDEC__KEEP(out->codes[i]);
    SPECDEC__UNROLL
    for (i = 0; i < per; i++) {
        out->pair[i] = unpacked ? _mm512_loadu_si512(panel->pair[block * per + i])
                                : specdec__avx512_pair(type, out->codes + i * 4, granule / 4);
        out->scale[i] = halves ? specdec__avx512_halves(own) : _mm512_loadu_ps(panel->scale[block * per + i]);
        if (specdec__x86_has_minimum(type))
            out->minimum[i] = halves ? specdec__avx512_halves(own + 2 * SPECDEC__ROWS)
                                     : _mm512_loadu_ps(panel->minimum[block * per + i]);
    }
}

/* integers (tiles, columns) = dots of granule g of blocks (tile) with columns from c on. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_integers(int type, int tiles, int columns,
                                                              const specdec__avx512_block *blocks, int g,
                                                              const specdec__x86_x *x, int c, __m512i *integers)
{
    const int vectors = specdec__x86_granule(type) / 4, per = 8 / vectors, chains = tiles == 1 && per == 1 ? 2 : 1;
    __m512i odd[SPECDEC__AVX512_FEW], value;
    int i, k, t;

    SPECDEC__UNROLL
    for (k = 0; k < columns; k++) {
        odd[k] = _mm512_setzero_si512();
        SPECDEC__UNROLL
        for (t = 0; t < tiles; t++)
            integers[t * columns + k] = _mm512_setzero_si512();
    }
    SPECDEC__UNROLL
    for (i = 0; i < vectors; i++)
        SPECDEC__UNROLL
        for (k = 0; k < columns; k++) {
            value = _mm512_set1_epi32(x->codes[(c + k) * 8 + i]);
            if (tiles > 1)
                SPECDEC__KEEP(value); /* loaded once for both tiles */
            SPECDEC__UNROLL
            for (t = 0; t < tiles; t++) {
                __m512i *to = i % chains ? &odd[k] : &integers[t * columns + k];

                *to = _mm512_dpbusd_epi32(*to, blocks[t].codes[g * 4 + i], value);
            }
        }
    SPECDEC__UNROLL
    for (k = 0; k < columns; k++) /* last, so that nothing waits for the pair */
        SPECDEC__UNROLL
        for (t = 0; t < tiles; t++) {
            integers[t * columns + k] = _mm512_dpwssd_epi32(integers[t * columns + k], blocks[t].pair[g],
                                                            _mm512_set1_epi32(x->pairs[(c + k) * per]));
            if (chains == 2)
                integers[t * columns + k] = _mm512_add_epi32(integers[t * columns + k], odd[k]);
        }
}

/* sum += what granule g of a block and its integers with column c give. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_add_up(int type, const specdec__avx512_block *block, int g,
                                                              const specdec__x86_x *x, int c, __m512i integers,
                                                              __m512 sum)
{
    const int per = 32 / specdec__x86_granule(type);

    sum = _mm512_fmadd_ps(_mm512_mul_ps(block->scale[g], _mm512_set1_ps(x->scales[c])), _mm512_cvtepi32_ps(integers),
                          sum);
    if (specdec__x86_has_minimum(type))
        sum = _mm512_fmadd_ps(block->minimum[g], _mm512_set1_ps(x->totals[c * per]), sum);
    return sum;
}

/* sums (tile: column, 16) += blocks (tile) times columns from c on. x (granule). */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_columns(int type, int tiles, int columns,
                                                             const specdec__avx512_block *blocks,
                                                             const specdec__x86_x *x, int c, float *const *sums)
{
    __m512i integers[8];
    int g, k, t;

    SPECDEC__UNROLL
    for (g = 0; g < 32 / specdec__x86_granule(type); g++) {
        specdec__avx512_integers(type, tiles, columns, blocks, g, &x[g], c, integers);
        SPECDEC__UNROLL
        for (k = 0; k < columns; k++)
            SPECDEC__UNROLL
            for (t = 0; t < tiles; t++) {
                float *to = sums[t] + (c + k) * SPECDEC__ROWS;

                _mm512_storeu_ps(to, specdec__avx512_add_up(type, blocks + t, g, &x[g], c + k,
                                                            integers[t * columns + k], _mm512_loadu_ps(to)));
            }
    }
}

/* A block of one or two tiles times count columns. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_block_columns(int type, int tiles,
                                                                   const specdec__avx512_block *taken,
                                                                   const specdec__columns *x, size_t at, int count,
                                                                   float *const *sums)
{
    const int per = 32 / specdec__x86_granule(type);
    specdec__x86_x from[2];
    int c, g;

    SPECDEC__UNROLL
    for (g = 0; g < per; g++)
        from[g] = specdec__x86_at(x, at, per, g);
    for (c = 0; c + 4 <= count; c += 4)
        specdec__avx512_columns(type, tiles, 4, taken, from, c, sums);
    for (; c < count; c++)
        specdec__avx512_columns(type, tiles, 1, taken, from, c, sums);
}

/* Two tiles side by side, which need a column's codes at the same time, times count columns. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_many(int type, const specdec__tiles *tiles, int blocks,
                                                          specdec__panel *panels, const specdec__columns *x, size_t at,
                                                          int count, float *const *sums)
{
    const int run = specdec__x86_is_block_32(type) ? blocks : 8;
    const size_t span = (size_t)specdec__x86_span(type), end = (size_t)blocks * span, n = (size_t)x->n;
    specdec__avx512_block taken[2];
    size_t from;
    int b, t;

    for (from = 0; from < end; from += (size_t)run * span) {
        if (!specdec__x86_is_block_32(type))
            for (t = 0; t < 2; t++)
                specdec__avx512_scales(type, tiles->tile[t] + from, panels + t);
        for (b = 0; b < run; b++, at += n) {
            SPECDEC__UNROLL
            for (t = 0; t < 2; t++) {
                specdec__x86_prefetch((int)span, tiles->tile[t], from + (size_t)b * span, end, tiles->next[t]);
                specdec__avx512_take(type, tiles->tile[t] + from, b, panels + t, taken + t);
            }
            specdec__avx512_block_columns(type, 2, taken, x, at, count, sums);
        }
    }
}

/* acc (columns) += a block times columns. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_few_block(int type, int columns,
                                                               const specdec__avx512_block *taken,
                                                               const specdec__columns *x, size_t at, __m512 *acc)
{
    const int per = 32 / specdec__x86_granule(type);
    __m512i integers[SPECDEC__AVX512_FEW];
    int g, k;

    SPECDEC__UNROLL
    for (g = 0; g < per; g++) {
        const specdec__x86_x granule = specdec__x86_at(x, at, per, g);

        specdec__avx512_integers(type, 1, columns, taken, g, &granule, 0, integers);
        SPECDEC__UNROLL
        for (k = 0; k < columns; k++)
            acc[k] = specdec__avx512_add_up(type, taken, g, &granule, k, integers[k], acc[k]);
    }
}

/* `columns` is a constant in what follows: 4, 5 or 6; or 0, which means count of them, 1 to 3. Those three counts share
   the code that unpacks. */
SPECDEC__INLINE int specdec__avx512_most(int columns) { return columns ? columns : 3; }

/* acc (columns) += a block times columns. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_few_columns(int type, int columns, int count,
                                                                 const specdec__avx512_block *taken,
                                                                 const specdec__columns *x, size_t at, __m512 *acc)
{
    if (columns)
        specdec__avx512_few_block(type, columns, taken, x, at, acc);
    else if (count == 1)
        specdec__avx512_few_block(type, 1, taken, x, at, acc);
    else if (count == 2)
        specdec__avx512_few_block(type, 2, taken, x, at, acc);
    else
        specdec__avx512_few_block(type, 3, taken, x, at, acc);
}

/* acc (columns) from sums (columns, 16). */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_get_sums(int columns, int count, const float *sums, __m512 *acc)
{
    int k;

    SPECDEC__UNROLL
    for (k = 0; k < specdec__avx512_most(columns); k++)
        acc[k] = columns || k < count ? _mm512_loadu_ps(sums + k * SPECDEC__ROWS) : _mm512_setzero_ps();
}

/* acc (columns) back to sums (columns, 16). */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_put_sums(int columns, int count, const __m512 *acc, float *sums)
{
    int k;

    SPECDEC__UNROLL
    for (k = 0; k < specdec__avx512_most(columns); k++)
        if (columns || k < count)
            _mm512_storeu_ps(sums + k * SPECDEC__ROWS, acc[k]);
}

/* One tile times 1 to 6 columns, whose sums stay in registers: in memory, every block would wait for the one before. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_few(int type, int columns, int count, const unsigned char *tile,
                                                         const unsigned char *next, int blocks, specdec__panel *panel,
                                                         const specdec__columns *x, size_t at, float *sums)
{
    const int run = specdec__x86_is_block_32(type) ? blocks : 8;
    const size_t span = (size_t)specdec__x86_span(type), end = (size_t)blocks * span, n = (size_t)x->n;
    specdec__avx512_block taken;
    __m512 acc[SPECDEC__AVX512_FEW];
    size_t from;
    int b;

    specdec__avx512_get_sums(columns, count, sums, acc);
    for (from = 0; from < end; from += (size_t)run * span) {
        if (!specdec__x86_is_block_32(type))
            specdec__avx512_scales(type, tile + from, panel);
        for (b = 0; b < run; b++, at += n) {
            specdec__x86_prefetch((int)span, tile, from + (size_t)b * span, end, next);
            specdec__avx512_take(type, tile + from, b, panel, &taken);
            specdec__avx512_few_columns(type, columns, count, &taken, x, at, acc);
        }
    }
    specdec__avx512_put_sums(columns, count, acc, sums);
}

/* Few columns: tile after tile, which reads memory faster. A single tile with many columns, which is rare: six columns
   at a time. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_multiply(int type, const specdec__tiles *tiles, int blocks,
                                                              specdec__panel *panels, const specdec__columns *x,
                                                              int block, int column, int count, float *const *sums)
{
    size_t at = (size_t)block * (size_t)x->n + (size_t)column;
    int t, c, few;

    for (t = 0; t < 2 && tiles->tile[t] && !block; t++)
        memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
    if (count > SPECDEC__AVX512_FEW && tiles->tile[1]) {
        specdec__avx512_many(type, tiles, blocks, panels, x, at, count, sums);
        return;
    }
    for (t = 0; t < 2 && tiles->tile[t]; t++) {
        const unsigned char *next = !t && tiles->tile[1] ? tiles->tile[1] : tiles->next[0];

        for (c = 0; c < count; c += few) {
            float *to = sums[t] + c * SPECDEC__ROWS;

            few = specdec__min_int(count - c, SPECDEC__AVX512_FEW);
            switch (few) {
            case 6: specdec__avx512_few(type, 6, 6, tiles->tile[t], next, blocks, panels, x, at + (size_t)c, to); break;
            case 5: specdec__avx512_few(type, 5, 5, tiles->tile[t], next, blocks, panels, x, at + (size_t)c, to); break;
            case 4: specdec__avx512_few(type, 4, 4, tiles->tile[t], next, blocks, panels, x, at + (size_t)c, to); break;
            default:
                specdec__avx512_few(type, 0, few, tiles->tile[t], next, blocks, panels, x, at + (size_t)c, to);
                break;
            }
        }
    }
}

#define SPECDEC__AVX512_TYPE(number) \
    SPECDEC__AVX512 static void \
    specdec__avx512_multiply_##number(const specdec__tiles *tiles, int blocks, specdec__panel *panels, \
                                      const specdec__columns *x, int block, int column, int count, \
                                      float *const *sums) \
    { \
        specdec__avx512_multiply(SPECDEC__TYPE_##number, tiles, blocks, panels, x, block, column, count, sums); \
    }

SPECDEC__AVX512_TYPE(Q4_0)
SPECDEC__AVX512_TYPE(Q8_0)
SPECDEC__AVX512_TYPE(Q4_K)
SPECDEC__AVX512_TYPE(Q6_K)

/* The other types are unpacked to unsigned codes and pairs, in much less machine code. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack(int type, const unsigned char *tile, int blocks,
                                                            specdec__panel *panel)
{
    const int per = 32 / specdec__x86_granule(type), span = specdec__x86_span(type);
    specdec__avx512_block taken;
    int b, i;

    if (!specdec__x86_is_block_32(type))
        specdec__avx512_scales(type, tile, panel);
    for (b = 0; b < blocks; b++) {
        for (i = 0; i < span; i += 64)
            _mm_prefetch((const char *)tile + b * span + SPECDEC__AHEAD + i, _MM_HINT_T0);
        specdec__avx512_take(type, tile, b, panel, &taken);
        for (i = 0; i < 8; i++)
            _mm512_storeu_si512(panel->u.codes + b * 512 + i * 64, taken.codes[i]);
        for (i = 0; i < per; i++) {
            _mm512_storeu_si512(panel->pair[b * per + i], taken.pair[i]);
            _mm512_storeu_ps(panel->scale[b * per + i], taken.scale[i]);
            if (specdec__x86_has_minimum(type))
                _mm512_storeu_ps(panel->minimum[b * per + i], taken.minimum[i]);
        }
    }
}

SPECDEC__X86_UNPACKED(SPECDEC__X86_UNPACK, avx512)

/* A panel whose codes are signed becomes one of codes plus 128 and their pairs, by granule. */
SPECDEC__AVX512 static void specdec__avx512_panel_pairs(int granule, int blocks, specdec__panel *panel)
{
    const int vectors = granule / 4;
    int8_t *codes = panel->u.codes;
    __m512i u[8];
    int g, i;

    for (g = 0; g < blocks * 8 / vectors; g++, codes += vectors * 64) {
        for (i = 0; i < vectors; i++) {
            u[i] = _mm512_xor_si512(_mm512_loadu_si512(codes + i * 64), _mm512_set1_epi8((char)-128));
            _mm512_storeu_si512(codes + i * 64, u[i]);
        }
        _mm512_storeu_si512(panel->pair[g], specdec__avx512_pair(SPECDEC__X86_PANEL_32_SIGNED, u, vectors));
    }
}

/* Any type, by its decoder. */
SPECDEC__AVX512 static void specdec__avx512_unpack_any(const specdec__quant_type *type, const unsigned char *tile,
                                                       int blocks, specdec__panel *panel)
{
    specdec__unpack_codes(type, tile, blocks, panel);
    specdec__avx512_panel_pairs(type->granule, blocks, panel);
}

/* Types whose codes are points of a grid. */
SPECDEC__AVX512 static void specdec__avx512_unpack_grid(const specdec__quant_type *type, const unsigned char *tile,
                                                        int blocks, specdec__panel *panel)
{
    specdec__avx2_expand(type, tile, panel);
    specdec__avx512_panel_pairs(type->granule, blocks, panel);
}

/* sums (columns, 16) += a panel times columns. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_dot_columns(int type, int columns, int count,
                                                                 const specdec__panel *panel, int blocks,
                                                                 const specdec__columns *x, size_t at, float *sums)
{
    specdec__avx512_block taken;
    __m512 acc[SPECDEC__AVX512_FEW];
    int b;

    specdec__avx512_get_sums(columns, count, sums, acc);
    for (b = 0; b < blocks; b++, at += (size_t)x->n) {
        specdec__avx512_take(type, NULL, b, panel, &taken);
        specdec__avx512_few_columns(type, columns, count, &taken, x, at, acc);
    }
    specdec__avx512_put_sums(columns, count, acc, sums);
}

/* The same, 4 columns at a time. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_dot(int type, const specdec__panel *panel, int blocks,
                                                         const specdec__columns *x, size_t at, int count, float *sums)
{
    for (; count >= 4; count -= 4, at += 4, sums += 4 * SPECDEC__ROWS)
        specdec__avx512_dot_columns(type, 4, 4, panel, blocks, x, at, sums);
    if (count)
        specdec__avx512_dot_columns(type, 0, count, panel, blocks, x, at, sums);
}

#define SPECDEC__AVX512_DOT(name, type) \
    SPECDEC__AVX512 static void \
    specdec__avx512_dot_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, int block, \
                               int column, int count, float *sums) \
    { \
        const size_t at = (size_t)block * (size_t)x->n + (size_t)column; \
        specdec__avx512_dot(type, panel, blocks, x, at, count, sums); \
    }

SPECDEC__AVX512_DOT(16, SPECDEC__X86_PANEL_16)
SPECDEC__AVX512_DOT(16m, SPECDEC__X86_PANEL_16M)
SPECDEC__AVX512_DOT(32, SPECDEC__X86_PANEL_32)
SPECDEC__AVX512_DOT(32m, SPECDEC__X86_PANEL_32M)

#define SPECDEC__ISA avx512
#define SPECDEC__TARGET SPECDEC__AVX512
#define SPECDEC__LANES 16
#define SPECDEC__WIDTH 4
#include SPECDEC__FILE
#endif /* x86_64 */

/* --- NEON, with and without dot products and matrix products ------------------------------------------------------ */

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__AARCH64EL__) && !defined(SPECDEC_NO_SIMD)
#define SPECDEC__NEON

/* The attributes are only on functions that call nothing but intrinsics, as gcc would not inline helpers of a newer
   base into them. Older clangs (14 is one) have these intrinsics only when the command line asks for them, so every
   clang gets the instruction. */
#if defined(__clang__)
#define SPECDEC__DOTPROD __attribute__((target("dotprod")))
#define SPECDEC__I8MM __attribute__((target("i8mm")))
#define SPECDEC__SDOT(sum, w, x, lane) __asm__("sdot %0.4s, %1.16b, %2.4b[" #lane "]" : "+w"(sum) : "w"(w), "w"(x))
#define SPECDEC__SMMLA(sum, w, x) __asm__("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x))
#else
#define SPECDEC__DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#define SPECDEC__I8MM __attribute__((target("arch=armv8.2-a+i8mm")))
#define SPECDEC__SDOT(sum, w, x, lane) ((sum) = vdotq_laneq_s32(sum, w, x, lane))
#define SPECDEC__SMMLA(sum, w, x) ((sum) = vmmlaq_s32(sum, w, x))
#endif

/* Sixteen float lanes. */
typedef struct specdec__neon_v {
    float32x4_t a, b, c, d;
} specdec__neon_v;

#define SPECDEC__NEON_LANES(name, parameters, expression) \
    SPECDEC__INLINE specdec__neon_v specdec__neon_##name parameters \
    { \
        specdec__neon_v r; \
        r.a = expression(a); \
        r.b = expression(b); \
        r.c = expression(c); \
        r.d = expression(d); \
        return r; \
    }

/* x > y ? x : y, as the other instruction sets have it; NEON's own maximum treats NaNs and zeros differently. */
SPECDEC__INLINE float32x4_t specdec__neon_max4(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}

/* x < y ? x : y. */
SPECDEC__INLINE float32x4_t specdec__neon_min4(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcltq_f32(x, y), x, y);
}

/* x * 2^n, where shifter is n + 1.5 * 2^23. */
SPECDEC__INLINE float32x4_t specdec__neon_scale4(float32x4_t x, float32x4_t shifter)
{
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x), vshlq_n_s32(vreinterpretq_s32_f32(shifter), 23)));
}

#define SPECDEC__NEON_EACH(part) vdupq_n_f32(x)
SPECDEC__NEON_LANES(set, (float x), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) vaddq_f32(x.part, y.part)
SPECDEC__NEON_LANES(add, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) vsubq_f32(x.part, y.part)
SPECDEC__NEON_LANES(sub, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) vmulq_f32(x.part, y.part)
SPECDEC__NEON_LANES(mul, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) vdivq_f32(x.part, y.part)
SPECDEC__NEON_LANES(div, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) vfmaq_f32(z.part, x.part, y.part)
SPECDEC__NEON_LANES(madd, (specdec__neon_v x, specdec__neon_v y, specdec__neon_v z), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) specdec__neon_max4(x.part, y.part)
SPECDEC__NEON_LANES(max, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) specdec__neon_min4(x.part, y.part)
SPECDEC__NEON_LANES(min, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) specdec__neon_scale4(x.part, shifter.part)
SPECDEC__NEON_LANES(scale2, (specdec__neon_v x, specdec__neon_v shifter), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH

/* More operations of SPECDEC__LANE_OPERATIONS. */
SPECDEC__INLINE specdec__neon_v specdec__neon_load(const float *at)
{
    specdec__neon_v r;

    r.a = vld1q_f32(at);
    r.b = vld1q_f32(at + 4);
    r.c = vld1q_f32(at + 8);
    r.d = vld1q_f32(at + 12);
    return r;
}

SPECDEC__INLINE void specdec__neon_store(float *at, specdec__neon_v x)
{
    vst1q_f32(at, x.a);
    vst1q_f32(at + 4, x.b);
    vst1q_f32(at + 8, x.c);
    vst1q_f32(at + 12, x.d);
}

SPECDEC__INLINE void specdec__neon_store_low_bytes(int8_t *at, specdec__neon_v x)
{
    int16x8_t low = vuzp1q_s16(vreinterpretq_s16_f32(x.a), vreinterpretq_s16_f32(x.b));
    int16x8_t high = vuzp1q_s16(vreinterpretq_s16_f32(x.c), vreinterpretq_s16_f32(x.d));

    vst1q_s8(at, vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high)));
}

/* The canonical sum of 16 lanes. */
SPECDEC__INLINE float specdec__neon_sum(const specdec__neon_v *parts)
{
    const specdec__neon_v x = parts[0];
    float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));

    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* The largest of 16 lanes. */
SPECDEC__INLINE float specdec__neon_highest(const specdec__neon_v *parts)
{
    const specdec__neon_v x = parts[0];
    float32x4_t four = specdec__neon_max4(specdec__neon_max4(x.a, x.c), specdec__neon_max4(x.b, x.d));
    float32x2_t low = vget_low_f32(four), high = vget_high_f32(four), two = vbsl_f32(vcgt_f32(low, high), low, high);
    float first = vget_lane_f32(two, 0), second = vget_lane_f32(two, 1);

    return first > second ? first : second;
}

SPECDEC__INLINE int32_t specdec__neon_sum_codes(const int8_t *codes) { return vaddlvq_s8(vld1q_s8(codes)); }

SPECDEC__INLINE int32_t specdec__neon_first_bits(specdec__neon_v x)
{
    return vgetq_lane_s32(vreinterpretq_s32_f32(x.a), 0);
}

/* Four half floats to floats. */
SPECDEC__INLINE float32x4_t specdec__neon_load_f16x4(const unsigned char *at)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at)));
}

SPECDEC__INLINE specdec__neon_v specdec__neon_load_f16(const void *at)
{
    const unsigned char *from = (const unsigned char *)at;
    specdec__neon_v r;

    r.a = specdec__neon_load_f16x4(from);
    r.b = specdec__neon_load_f16x4(from + 8);
    r.c = specdec__neon_load_f16x4(from + 16);
    r.d = specdec__neon_load_f16x4(from + 24);
    return r;
}

/* Four bfloat16 to floats. */
SPECDEC__INLINE float32x4_t specdec__neon_load_bf16x4(const unsigned char *at)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(at)), 16));
}

SPECDEC__INLINE specdec__neon_v specdec__neon_load_bf16(const void *at)
{
    const unsigned char *from = (const unsigned char *)at;
    specdec__neon_v r;

    r.a = specdec__neon_load_bf16x4(from);
    r.b = specdec__neon_load_bf16x4(from + 8);
    r.c = specdec__neon_load_bf16x4(from + 16);
    r.d = specdec__neon_load_bf16x4(from + 24);
    return r;
}

SPECDEC__INLINE void specdec__neon_store_f16(void *at, specdec__neon_v x)
{
    unsigned char *to = (unsigned char *)at;

    vst1_u8(to, vreinterpret_u8_f16(vcvt_f16_f32(x.a)));
    vst1_u8(to + 8, vreinterpret_u8_f16(vcvt_f16_f32(x.b)));
    vst1_u8(to + 16, vreinterpret_u8_f16(vcvt_f16_f32(x.c)));
    vst1_u8(to + 24, vreinterpret_u8_f16(vcvt_f16_f32(x.d)));
}

#define SPECDEC__ISA neon
#define SPECDEC__TARGET
#define SPECDEC__LANES 16
#define SPECDEC__WIDTH 1
#include SPECDEC__FILE

/* Unpacking. Codes are signed; pair is the sum of a granule's codes. Layout of codes: (value/4, row, 4), or, zipped for
   matrix products, (value/8, row, 8). Plain NEON multiplies narrow codes (-32..32) in longer chains of 16-bit sums.
   Granules of 32 without a minimum may hold narrow codes or wide ones; a row of pair that they do not use says which.
   */
#define SPECDEC__NEON_WIDE(panel) ((panel)->pair[SPECDEC__PANEL / 32][0])

/* Stores 32 values of the 4 rows from 4*quad on, q[i] = values 4*i.. of each, and their sums. */
SPECDEC__INLINE void specdec__neon_put_codes(specdec__panel *panel, int block, int quad, const int8x16_t q[8],
                                             int granule, int zipped)
{
    int8_t *codes = panel->u.codes + block * 512;
    int16x8_t low = vpaddlq_s8(q[0]), high = vpaddlq_s8(q[4]);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        if (zipped) {
            int32x4_t even = vreinterpretq_s32_s8(q[2 * i]), odd = vreinterpretq_s32_s8(q[2 * i + 1]);

            vst1q_s8(codes + i * 128 + quad * 32, vreinterpretq_s8_s32(vzip1q_s32(even, odd)));
            vst1q_s8(codes + i * 128 + quad * 32 + 16, vreinterpretq_s8_s32(vzip2q_s32(even, odd)));
        } else {
            vst1q_s8(codes + i * 128 + quad * 16, q[2 * i]);
            vst1q_s8(codes + i * 128 + quad * 16 + 64, q[2 * i + 1]);
        }
        if (i) {
            low = vpadalq_s8(low, q[i]);
            high = vpadalq_s8(high, q[i + 4]);
        }
    }
    if (granule == 32) {
        vst1q_s32(&panel->pair[block][quad * 4], vpaddlq_s16(vaddq_s16(low, high)));
    } else {
        vst1q_s32(&panel->pair[block * 2][quad * 4], vpaddlq_s16(low));
        vst1q_s32(&panel->pair[block * 2 + 1][quad * 4], vpaddlq_s16(high));
    }
}

/* out (16 rows) = d * factor, or its negative; both factors exact. */
SPECDEC__INLINE void specdec__neon_put_scale(float *out, const unsigned char *d, int8x16_t factor, int negative)
{
    int16x8_t low = vmovl_s8(vget_low_s8(factor)), high = vmovl_s8(vget_high_s8(factor));
    specdec__neon_v scale = specdec__neon_load_f16(d), r;

    r.a = vmulq_f32(scale.a, vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))));
    r.b = vmulq_f32(scale.b, vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))));
    r.c = vmulq_f32(scale.c, vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))));
    r.d = vmulq_f32(scale.d, vcvtq_f32_s32(vmovl_s16(vget_high_s16(high))));
    if (negative) {
        r.a = vnegq_f32(r.a);
        r.b = vnegq_f32(r.b);
        r.c = vnegq_f32(r.c);
        r.d = vnegq_f32(r.d);
    }
    specdec__neon_store(out, r);
}

/* The low four bits of each byte. */
SPECDEC__INLINE int8x16_t specdec__neon_low_nibbles(uint8x16_t packed)
{
    return vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15)));
}

/* The high four bits of each byte. */
SPECDEC__INLINE int8x16_t specdec__neon_high_nibbles(uint8x16_t packed)
{
    return vreinterpretq_s8_u8(vshrq_n_u8(packed, 4));
}

/* Any type, by its decoder; the codes are then put in this order. */
SPECDEC__INLINE void specdec__neon_unpack_generic(const specdec__quant_type *type, const unsigned char *tile,
                                                  int blocks, specdec__panel *panel, int zipped)
{
    int b, quad, i;

    specdec__unpack_codes(type, tile, blocks, panel);
    SPECDEC__NEON_WIDE(panel) = 1;
    for (b = 0; b < blocks; b++) {
        int8x16_t q[4][8];

        for (quad = 0; quad < 4; quad++)
            for (i = 0; i < 8; i++)
                q[quad][i] = vld1q_s8(panel->u.codes + b * 512 + i * 64 + quad * 16);
        for (quad = 0; quad < 4; quad++)
            specdec__neon_put_codes(panel, b, quad, q[quad], type->granule, zipped);
    }
}

/* Where blocks of 32 of nibbles have their parts in a tile: 0 where there is none. */
typedef struct specdec__neon_parts {
    size_t bytes, minimum, high, nibbles;
} specdec__neon_parts;

#define SPECDEC__NEON_PARTS(type, minimum, high) \
    {SPECDEC__TILE_BYTES(type), minimum, high, SPECDEC__TILE_AT(type, nibbles)}

/* code = nibble + 16 * high bit + offset, or values[nibble]. */
SPECDEC__INLINE void specdec__neon_unpack_nibbles(const specdec__neon_parts parts, const unsigned char *tile,
                                                  int blocks, specdec__panel *panel, int zipped, int offset,
                                                  const int8_t *values)
{
    const int8x16_t add = vdupq_n_s8((int8_t)offset), table = values ? vld1q_s8(values) : add;
    const uint8x16_t bit = vdupq_n_u8(16);
    int b, quad, i;

    SPECDEC__NEON_WIDE(panel) = values != NULL;
    for (b = 0; b < blocks; b++, tile += parts.bytes) {
        const unsigned char *nibbles = tile + parts.nibbles;

        for (quad = 0; quad < 4; quad++) {
            uint8x16_t high = parts.high ? vld1q_u8(tile + parts.high + quad * 16) : bit;
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 4; i++) {
                uint8x16_t packed = vld1q_u8(nibbles + i * 64 + quad * 16);

                q[i] = specdec__neon_low_nibbles(packed);
                q[i + 4] = specdec__neon_high_nibbles(packed);
            }
            SPECDEC__UNROLL
            for (i = 0; i < 8; i++) {
                if (parts.high) {
                    uint8x16_t moved = vshlq_u8(high, vdupq_n_s8((int8_t)(4 - i)));
                    q[i] = vorrq_s8(q[i], vreinterpretq_s8_u8(vandq_u8(moved, bit)));
                }
                if (values)
                    q[i] = vqtbl1q_s8(table, vreinterpretq_u8_s8(q[i]));
                else if (offset)
                    q[i] = vaddq_s8(q[i], add);
            }
            specdec__neon_put_codes(panel, b, quad, q, 32, zipped);
        }
        specdec__neon_store(panel->scale[b], specdec__neon_load_f16(tile));
        if (parts.minimum)
            specdec__neon_store(panel->minimum[b], specdec__neon_load_f16(tile + parts.minimum));
    }
}

/* Q8_0: d, 8 words of codes. */
SPECDEC__INLINE void specdec__neon_unpack_bytes(const unsigned char *tile, int blocks, specdec__panel *panel,
                                                int zipped)
{
    int b, quad, i;

    SPECDEC__NEON_WIDE(panel) = 1;
    for (b = 0; b < blocks; b++, tile += SPECDEC__TILE_BYTES(q8_0)) {
        for (quad = 0; quad < 4; quad++) {
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 8; i++)
                q[i] = vreinterpretq_s8_u8(vld1q_u8(tile + SPECDEC__TILE_AT(q8_0, codes) + i * 64 + quad * 16));
            specdec__neon_put_codes(panel, b, quad, q, 32, zipped);
        }
        specdec__neon_store(panel->scale[b], specdec__neon_load_f16(tile));
    }
}

/* Scales and minimums of Q4_K and Q5_K from a tile's d, dmin and 12 packed bytes. */
SPECDEC__INLINE void specdec__neon_scales_k(const unsigned char *tile, float (*scale)[SPECDEC__ROWS],
                                            float (*minimum)[SPECDEC__ROWS])
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q4_k, scales), *dmin = tile + SPECDEC__TILE_AT(q4_k, dmin);
    const uint8x16_t six = vdupq_n_u8(63), top = vdupq_n_u8(48), low = vdupq_n_u8(15);
    int i;

    for (i = 0; i < 4; i++) {
        uint8x16_t s = vld1q_u8(packed + i * 16), m = vld1q_u8(packed + (i + 4) * 16);
        uint8x16_t both = vld1q_u8(packed + (i + 8) * 16);
        uint8x16_t s4 = vorrq_u8(vandq_u8(both, low), vandq_u8(vshrq_n_u8(s, 2), top));
        uint8x16_t m4 = vorrq_u8(vshrq_n_u8(both, 4), vandq_u8(vshrq_n_u8(m, 2), top));

        specdec__neon_put_scale(scale[i], tile, vreinterpretq_s8_u8(vandq_u8(s, six)), 0);
        specdec__neon_put_scale(scale[i + 4], tile, vreinterpretq_s8_u8(s4), 0);
        specdec__neon_put_scale(minimum[i], dmin, vreinterpretq_s8_u8(vandq_u8(m, six)), 1);
        specdec__neon_put_scale(minimum[i + 4], dmin, vreinterpretq_s8_u8(m4), 1);
    }
}

/* Q4_K, or with high bits Q5_K: d, dmin, 12 bytes of scales, [8 words of high bits,] 32 words of nibbles. */
SPECDEC__INLINE void specdec__neon_unpack_k(const unsigned char *tile, int blocks, specdec__panel *panel, int zipped,
                                            int has_high)
{
    const uint8x16_t bit = vdupq_n_u8(16);
    int b, quad, i;

    for (b = 0; b < blocks; b += 2) {
        const unsigned char *high = tile + SPECDEC__TILE_AT(q5_k, high);
        const unsigned char *nibbles = tile + b % 8 * 256 + (has_high ? SPECDEC__TILE_AT(q5_k, nibbles)
                                                                      : SPECDEC__TILE_AT(q4_k, nibbles));

        for (quad = 0; quad < 4; quad++) {
            int8x16_t even[8], odd[8];

            SPECDEC__UNROLL
            for (i = 0; i < 8; i++) {
                uint8x16_t packed = vld1q_u8(nibbles + i * 64 + quad * 16);

                even[i] = specdec__neon_low_nibbles(packed);
                odd[i] = specdec__neon_high_nibbles(packed);
                if (has_high) {
                    uint8x16_t bits = vld1q_u8(high + i * 64 + quad * 16);
                    uint8x16_t bits0 = vandq_u8(vshlq_u8(bits, vdupq_n_s8((int8_t)(4 - b % 8))), bit);
                    uint8x16_t bits1 = vandq_u8(vshlq_u8(bits, vdupq_n_s8((int8_t)(3 - b % 8))), bit);

                    even[i] = vorrq_s8(even[i], vreinterpretq_s8_u8(bits0));
                    odd[i] = vorrq_s8(odd[i], vreinterpretq_s8_u8(bits1));
                }
            }
            specdec__neon_put_codes(panel, b, quad, even, 32, zipped);
            specdec__neon_put_codes(panel, b + 1, quad, odd, 32, zipped);
        }
        if (b % 8 == 0)
            specdec__neon_scales_k(tile, panel->scale + b, panel->minimum + b);
        if (b % 8 == 6)
            tile += has_high ? SPECDEC__TILE_BYTES(q5_k) : SPECDEC__TILE_BYTES(q4_k);
    }
}

/* Q6_K: 32 words of nibbles, 16 words of 2 high bits, 16 signed scales, d. Blocks t and t + 2 of a half share bytes. */
SPECDEC__INLINE void specdec__neon_unpack_6k(const unsigned char *tile, int blocks, specdec__panel *panel, int zipped)
{
    const int8x16_t offset = vdupq_n_s8(32);
    const uint8x16_t crumb = vdupq_n_u8(48);
    int b, quad, i;

    for (b = 0; b < blocks; b++) {
        const int half = b % 8 / 4, part = b % 4;
        const unsigned char *low = tile + SPECDEC__TILE_AT(q6_k, nibbles) + half * 1024 + part % 2 * 512;
        const unsigned char *high = tile + SPECDEC__TILE_AT(q6_k, crumbs) + half * 512;
        const int8x16_t low_shift = vdupq_n_s8((int8_t)(part / 2 * -4));
        const int8x16_t high_shift = vdupq_n_s8((int8_t)(4 - part * 2));

        for (quad = 0; quad < 4; quad++) {
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 8; i++) {
                int8x16_t nibbles = specdec__neon_low_nibbles(vshlq_u8(vld1q_u8(low + i * 64 + quad * 16), low_shift));
                uint8x16_t bits = vandq_u8(vshlq_u8(vld1q_u8(high + i * 64 + quad * 16), high_shift), crumb);

                q[i] = vsubq_s8(vorrq_s8(nibbles, vreinterpretq_s8_u8(bits)), offset);
            }
            specdec__neon_put_codes(panel, b, quad, q, 16, zipped);
        }
        for (i = 0; i < 2; i++) {
            uint8x16_t scale = vld1q_u8(tile + SPECDEC__TILE_AT(q6_k, scales) + (b % 8 * 2 + i) * 16);

            specdec__neon_put_scale(panel->scale[b * 2 + i], tile + SPECDEC__TILE_AT(q6_k, d),
                                    vreinterpretq_s8_u8(scale), 0);
        }
        if (b % 8 == 7)
            tile += SPECDEC__TILE_BYTES(q6_k);
    }
}

/* IQ4_XS: d, two high bits of 8 scales, their nibbles, 32 words of nibbles that index the table. */
SPECDEC__INLINE void specdec__neon_unpack_4xs(const unsigned char *tile, int blocks, specdec__panel *panel, int zipped)
{
    const int8x16_t table = vld1q_s8(specdec__quant_iq4_values);
    int b, quad, i;

    SPECDEC__NEON_WIDE(panel) = 1;
    for (b = 0; b < blocks; b++) {
        const int at = b % 8;
        uint8x16x2_t high = vld2q_u8(tile + SPECDEC__TILE_AT(iq4_xs, high)); /* blocks 0..3, blocks 4..7 */
        uint8x16_t top = vshlq_u8(at < 4 ? high.val[0] : high.val[1], vdupq_n_s8((int8_t)(4 - at % 4 * 2)));
        uint8x16_t low = vshlq_u8(vld1q_u8(tile + SPECDEC__TILE_AT(iq4_xs, low) + at / 2 * 16),
                                  vdupq_n_s8((int8_t)(at % 2 * -4)));
        uint8x16_t scale = vorrq_u8(vandq_u8(low, vdupq_n_u8(15)), vandq_u8(top, vdupq_n_u8(48)));

        for (quad = 0; quad < 4; quad++) {
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 4; i++) {
                uint8x16_t packed = vld1q_u8(tile + SPECDEC__TILE_AT(iq4_xs, nibbles) + at * 256 + i * 64 + quad * 16);

                q[i] = vqtbl1q_s8(table, vreinterpretq_u8_s8(specdec__neon_low_nibbles(packed)));
                q[i + 4] = vqtbl1q_s8(table, vreinterpretq_u8_s8(specdec__neon_high_nibbles(packed)));
            }
            specdec__neon_put_codes(panel, b, quad, q, 32, zipped);
        }
        specdec__neon_put_scale(panel->scale[b], tile, vsubq_s8(vreinterpretq_s8_u8(scale), vdupq_n_s8(32)), 0);
        if (at == 7)
            tile += SPECDEC__TILE_BYTES(iq4_xs);
    }
}

/* The unpack functions of the two layouts. */
#define SPECDEC__NEON_UNPACK(isa, name, call) \
    static void specdec__##isa##_unpack_##name(const specdec__quant_type *type, const unsigned char *tile, int blocks, \
                                               specdec__panel *panel) \
    { \
        (void)type; \
        call; \
    }
#define SPECDEC__NEON_NIBBLES(isa, zipped, type_name, minimum, high, offset, values) \
    SPECDEC__NEON_UNPACK(isa, type_name, \
        const specdec__neon_parts parts = SPECDEC__NEON_PARTS(type_name, minimum, high); \
        specdec__neon_unpack_nibbles(parts, tile, blocks, panel, zipped, offset, values))
#define SPECDEC__NEON_UNPACKS(isa, zipped) \
    SPECDEC__NEON_UNPACK(isa, any, specdec__neon_unpack_generic(type, tile, blocks, panel, zipped)) \
    SPECDEC__NEON_NIBBLES(isa, zipped, q4_0, 0, 0, -8, NULL) \
    SPECDEC__NEON_NIBBLES(isa, zipped, q4_1, SPECDEC__TILE_AT(q4_1, minimum), 0, 0, NULL) \
    SPECDEC__NEON_NIBBLES(isa, zipped, q5_0, 0, SPECDEC__TILE_AT(q5_0, high), -16, NULL) \
    SPECDEC__NEON_NIBBLES(isa, zipped, q5_1, SPECDEC__TILE_AT(q5_1, minimum), SPECDEC__TILE_AT(q5_1, high), 0, NULL) \
    SPECDEC__NEON_UNPACK(isa, q8_0, specdec__neon_unpack_bytes(tile, blocks, panel, zipped)) \
    SPECDEC__NEON_UNPACK(isa, q4_k, specdec__neon_unpack_k(tile, blocks, panel, zipped, 0)) \
    SPECDEC__NEON_UNPACK(isa, q5_k, specdec__neon_unpack_k(tile, blocks, panel, zipped, 1)) \
    SPECDEC__NEON_UNPACK(isa, q6_k, specdec__neon_unpack_6k(tile, blocks, panel, zipped)) \
    SPECDEC__NEON_NIBBLES(isa, zipped, iq4_nl, 0, 0, 0, specdec__quant_iq4_values) \
    SPECDEC__NEON_UNPACK(isa, iq4_xs, specdec__neon_unpack_4xs(tile, blocks, panel, zipped))

SPECDEC__NEON_UNPACKS(neon, 0)
SPECDEC__NEON_UNPACKS(i8mm, 1)

/* The dot functions: up to 4 columns at once over 16 rows in quads of 4, float sums in registers. What they share is in
   macros, as gcc inlines no function across target attributes. */
#define SPECDEC__NEON_GRANULE(b, g) ((b) * (32 / granule) + (g))
/* One value of each column from at on, as lanes. */
#define SPECDEC__NEON_GATHER(type, at) \
    (columns == 4 ? vld1q_##type(at) \
                  : columns == 2 ? vcombine_##type(vld1_##type(at), vdup_n_##type(0)) : vld1q_dup_##type(at))
/* The offsets of the columns' block. */
#define SPECDEC__NEON_OFFSETS(at) vshrq_n_s32(vshlq_n_s32(SPECDEC__NEON_GATHER(s32, x->pair32 + (at)), 16), 16)
/* acc += the exact integer sum over granule k (g of its block) times both scales, and the minimum: canonical order. */
#define SPECDEC__NEON_FOLD(k, c, sum) \
    do { \
        acc[c] = vfmaq_f32(acc[c], vmulq_n_f32(vld1q_f32(&panel->scale[k][row]), scales[c]), vcvtq_f32_s32(sum)); \
        if (has_minimum) \
            acc[c] = vfmaq_n_f32(acc[c], vld1q_f32(&panel->minimum[k][row]), \
                                 granule == 32 ? x->sum32[at + (size_t)(c)] \
                                               : x->sum16[(at + (size_t)(c)) * 2 + (size_t)g]); \
    } while (0)

/* The sums of four rows of the columns, into registers and back. */
#define SPECDEC__NEON_TAKE_SUMS \
    float32x4_t acc[4]; \
    size_t at = from; \
    SPECDEC__UNROLL \
    for (c = 0; c < columns; c++) \
        acc[c] = vld1q_f32(sums + c * SPECDEC__ROWS + row)
#define SPECDEC__NEON_GIVE_SUMS \
    SPECDEC__UNROLL \
    for (c = 0; c < columns; c++) \
        vst1q_f32(sums + c * SPECDEC__ROWS + row, acc[c])

/* Sums of 8 products (with wide, 2) of each row fit into 16 bits: 8 * 32 * 127, 2 * 128 * 127. */
SPECDEC__INLINE void specdec__neon_columns(const specdec__panel *panel, int blocks, const specdec__columns *x,
                                           size_t from, float *sums, int granule, int has_minimum, int columns,
                                           int wide)
{
    const int words = granule / 4, chain = wide ? 2 : words;
    int row, b, c, g, i;

    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        SPECDEC__NEON_TAKE_SUMS;

        for (b = 0; b < blocks; b++, at += (size_t)x->n) {
            const float32x4_t scales = SPECDEC__NEON_GATHER(f32, x->scale + at);
            const int32x4_t offsets = SPECDEC__NEON_OFFSETS(at);

            SPECDEC__UNROLL
            for (g = 0; g < 32 / granule; g++) {
                const int8_t *weights = panel->u.codes + b * 512 + g * granule * 16 + row * 4;
                const int32x4_t pair = vld1q_s32(&panel->pair[SPECDEC__NEON_GRANULE(b, g)][row]);
                int8x16_t w[8];

                SPECDEC__UNROLL
                for (i = 0; i < words; i++)
                    w[i] = vld1q_s8(weights + i * 64);
                SPECDEC__UNROLL
                for (c = 0; c < columns; c++) {
                    const int8_t *codes = x->codes + (at + (size_t)c) * 32 + g * granule;
                    int32x4_t low = vdupq_n_s32(0), high = low;
                    int16x8_t low16 = vdupq_n_s16(0), high16 = low16;

                    SPECDEC__UNROLL
                    for (i = 0; i < words; i++) {
                        const int32_t *four = (const int32_t *)(const void *)(codes + i * 4);
                        int8x16_t v = vreinterpretq_s8_s32(vld1q_dup_s32(four));

                        low16 = i % chain ? vmlal_s8(low16, vget_low_s8(w[i]), vget_low_s8(v))
                                          : vmull_s8(vget_low_s8(w[i]), vget_low_s8(v));
                        high16 = i % chain ? vmlal_high_s8(high16, w[i], v) : vmull_high_s8(w[i], v);
                        if (i % chain == chain - 1) {
                            low = vpadalq_s16(low, low16);
                            high = vpadalq_s16(high, high16);
                        }
                    }
                    low = vmlaq_n_s32(vpaddq_s32(low, high), pair, offsets[c]);
                    SPECDEC__NEON_FOLD(SPECDEC__NEON_GRANULE(b, g), c, low);
                }
            }
        }
        SPECDEC__NEON_GIVE_SUMS;
    }
}

SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_columns(const specdec__panel *panel, int blocks,
                                                               const specdec__columns *x, size_t from, float *sums,
                                                               int granule, int has_minimum, int columns)
{
    int row, b, c, g, h;

    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        SPECDEC__NEON_TAKE_SUMS;

        for (b = 0; b < blocks; b++, at += (size_t)x->n) {
            const float32x4_t scales = SPECDEC__NEON_GATHER(f32, x->scale + at);
            const int32x4_t offsets = SPECDEC__NEON_OFFSETS(at);

            SPECDEC__UNROLL
            for (g = 0; g < 32 / granule; g++) {
                const int32x4_t pair = vld1q_s32(&panel->pair[SPECDEC__NEON_GRANULE(b, g)][row]);
                int32x4_t dot[4];

                SPECDEC__UNROLL
                for (c = 0; c < columns; c++)
                    dot[c] = vmulq_n_s32(pair, offsets[c]);
                SPECDEC__UNROLL
                for (h = g; h < g + granule / 16; h++) {
                    const int8_t *weights = panel->u.codes + b * 512 + h * 256 + row * 4;
                    const int8x16_t w0 = vld1q_s8(weights), w1 = vld1q_s8(weights + 64);
                    const int8x16_t w2 = vld1q_s8(weights + 128), w3 = vld1q_s8(weights + 192);
                    int8x16_t v[4];

                    SPECDEC__UNROLL
                    for (c = 0; c < columns; c++)
                        v[c] = vld1q_s8(x->codes + (at + (size_t)c) * 32 + h * 16);
                    SPECDEC__UNROLL
                    for (c = 0; c < columns; c++)
                        SPECDEC__SDOT(dot[c], w0, v[c], 0);
                    SPECDEC__UNROLL
                    for (c = 0; c < columns; c++)
                        SPECDEC__SDOT(dot[c], w1, v[c], 1);
                    SPECDEC__UNROLL
                    for (c = 0; c < columns; c++)
                        SPECDEC__SDOT(dot[c], w2, v[c], 2);
                    SPECDEC__UNROLL
                    for (c = 0; c < columns; c++)
                        SPECDEC__SDOT(dot[c], w3, v[c], 3);
                }
                SPECDEC__UNROLL
                for (c = 0; c < columns; c++)
                    SPECDEC__NEON_FOLD(SPECDEC__NEON_GRANULE(b, g), c, dot[c]);
            }
        }
        SPECDEC__NEON_GIVE_SUMS;
    }
}

/* Columns in pairs; a single one is its own partner. */
SPECDEC__I8MM SPECDEC__INLINE void specdec__i8mm_columns(const specdec__panel *panel, int blocks,
                                                         const specdec__columns *x, size_t from, float *sums,
                                                         int granule, int has_minimum, int columns)
{
    const int partner = columns > 1;
    int row, b, c, g, i;

    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        SPECDEC__NEON_TAKE_SUMS;

        for (b = 0; b < blocks; b++, at += (size_t)x->n) {
            const float32x4_t scales = SPECDEC__NEON_GATHER(f32, x->scale + at);
            const int32x4_t offsets = SPECDEC__NEON_OFFSETS(at);

            SPECDEC__UNROLL
            for (g = 0; g < 32 / granule; g++) {
                const int32x4_t pair = vld1q_s32(&panel->pair[SPECDEC__NEON_GRANULE(b, g)][row]);
                int32x4_t low[2], high[2]; /* (row, column) of rows 0 and 1, 2 and 3 */

                low[0] = low[1] = high[0] = high[1] = vdupq_n_s32(0);
                SPECDEC__UNROLL
                for (i = g * (granule / 8); i < (g + 1) * (granule / 8); i++) {
                    const int8_t *weights = panel->u.codes + b * 512 + i * 128 + row * 8;
                    const int8x16_t w0 = vld1q_s8(weights), w1 = vld1q_s8(weights + 16);

                    SPECDEC__UNROLL
                    for (c = 0; c < columns; c += 2) {
                        const int8_t *codes = x->codes + (at + (size_t)c) * 32 + i * 8;
                        const int8x16_t v = vcombine_s8(vld1_s8(codes), vld1_s8(codes + partner * 32));

                        SPECDEC__SMMLA(low[c / 2], w0, v);
                        SPECDEC__SMMLA(high[c / 2], w1, v);
                    }
                }
                SPECDEC__UNROLL
                for (c = 0; c < columns; c++) {
                    int32x4_t dot = c % 2 ? vuzp2q_s32(low[c / 2], high[c / 2]) : vuzp1q_s32(low[c / 2], high[c / 2]);

                    dot = vmlaq_n_s32(dot, pair, offsets[c]);
                    SPECDEC__NEON_FOLD(SPECDEC__NEON_GRANULE(b, g), c, dot);
                }
            }
        }
        SPECDEC__NEON_GIVE_SUMS;
    }
}

/* Groups of 4, 2 and 1 columns. */
#define SPECDEC__NEON_GROUPS(call, extra) \
    do { \
        size_t at = (size_t)block * (size_t)x->n + (size_t)column; \
        for (; count >= 4; count -= 4, at += 4, sums += 64) \
            call(panel, blocks, x, at, sums, granule, has_minimum, 4 extra); \
        if (count & 2) { \
            call(panel, blocks, x, at, sums, granule, has_minimum, 2 extra); \
            at += 2; \
            sums += 32; \
        } \
        if (count & 1) \
            call(panel, blocks, x, at, sums, granule, has_minimum, 1 extra); \
    } while (0)
#define SPECDEC__NEON_COMMA_0 , 0
#define SPECDEC__NEON_COMMA_1 , 1

/* Adds a panel times count columns to sums, with plain NEON. */
SPECDEC__INLINE void specdec__neon_dot(const specdec__panel *panel, int blocks, const specdec__columns *x, int block,
                                       int column, int count, float *sums, int granule, int has_minimum)
{
    if (granule == 32 && !has_minimum && SPECDEC__NEON_WIDE(panel))
        SPECDEC__NEON_GROUPS(specdec__neon_columns, SPECDEC__NEON_COMMA_1);
    else
        SPECDEC__NEON_GROUPS(specdec__neon_columns, SPECDEC__NEON_COMMA_0);
}

/* The same with dot products. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_dot(const specdec__panel *panel, int blocks,
                                                           const specdec__columns *x, int block, int column, int count,
                                                           float *sums, int granule, int has_minimum)
{
    SPECDEC__NEON_GROUPS(specdec__dotprod_columns, );
}

/* The same with matrix products. */
SPECDEC__I8MM SPECDEC__INLINE void specdec__i8mm_dot(const specdec__panel *panel, int blocks, const specdec__columns *x,
                                                     int block, int column, int count, float *sums, int granule,
                                                     int has_minimum)
{
    SPECDEC__NEON_GROUPS(specdec__i8mm_columns, );
}

SPECDEC__DOTS(neon, )
SPECDEC__DOTS(dotprod, SPECDEC__DOTPROD)
SPECDEC__DOTS(i8mm, SPECDEC__I8MM)
#endif /* aarch64 */

/* --- encoders, four tries at a time ------------------------------------------------------------------------------- */

#ifdef SPECDEC__QUANT_WIDE
#ifdef __x86_64__
#define SPECDEC__WIDE __attribute__((target("avx2,fma")))
typedef double specdec__wide_four __attribute__((vector_size(32)));

/* Adds one element to the sums of four tries: code_value, code_code, code; scaled = value * inverse. Fused, because the
   products are exact: the bits are those of specdec__quant_add. */
SPECDEC__INLINE SPECDEC__WIDE void
specdec__wide_add(specdec__wide_four *sums, const double *weight, double weighted,
                  const specdec__wide_four *scaled, double low, double high)
{
    const specdec__wide_four lowest = {low, low, low, low}, highest = {high, high, high, high};
    const specdec__wide_four product = {weighted, weighted, weighted, weighted};
    specdec__wide_four code = __builtin_ia32_minpd256(__builtin_ia32_maxpd256(*scaled, lowest), highest), weight_code;

    code = (code + 6755399441055744.0) - 6755399441055744.0;
    weight_code = weight ? *weight * code : code;
    sums[0] = __builtin_ia32_vfmaddpd256(product, code, sums[0]);
    sums[1] = __builtin_ia32_vfmaddpd256(weight_code, code, sums[1]);
    sums[2] += weight_code;
}

/* As specdec__quant_try_two, four tries side by side. inverse: SPECDEC__QUANT_TRIES, 0 beyond tries. */
SPECDEC__INLINE SPECDEC__WIDE void
specdec__wide_try(int pairs, const specdec__pair *value, const specdec__pair *weight,
                  const specdec__pair *weighted, double low, double high, int tries,
                  const double *inverse, specdec__quant_trial *trial)
{
    const specdec__wide_four zero = {0, 0, 0, 0};
    int i, t;

    for (t = 0; t < tries; t += 4) {
        specdec__wide_four even[3] = {zero, zero, zero}, odd[3] = {zero, zero, zero}, inverses;

        memcpy(&inverses, inverse + t, sizeof inverses);
        for (i = 0; i < pairs; i++) {
            specdec__wide_four a = inverses * value[i][0], b = inverses * value[i][1];
            double first = weight ? weight[i][0] : 1, second = weight ? weight[i][1] : 1;

            specdec__wide_add(even, weight ? &first : NULL, weighted[i][0], &a, low, high);
            specdec__wide_add(odd, weight ? &second : NULL, weighted[i][1], &b, low, high);
        }
        for (i = 0; i < 3; i++)
            even[i] += odd[i];
        memcpy(trial->code_value + t, &even[0], sizeof even[0]);
        memcpy(trial->code_code + t, &even[1], sizeof even[1]);
        memcpy(trial->code + t, &even[2], sizeof even[2]);
    }
}

/* Without and with weights: two loops. */
static SPECDEC__WIDE __attribute__((noinline)) void
specdec__wide_tries(int pairs, const specdec__pair *value, const specdec__pair *weight,
                    const specdec__pair *weighted, double low, double high, int tries,
                    const double *inverse, specdec__quant_trial *trial)
{
    if (weight)
        specdec__wide_try(pairs, value, weight, weighted, low, high, tries, inverse, trial);
    else
        specdec__wide_try(pairs, value, NULL, weighted, low, high, tries, inverse, trial);
}
#endif

/* The one of the two that suits this processor. */
static void specdec__quant_try(int pairs, const specdec__pair *value, const specdec__pair *weight,
                               const specdec__pair *weighted, double low, double high, int tries,
                               const double *inverse, specdec__quant_trial *trial)
{
#ifdef SPECDEC__WIDE
    if (SPECDEC__OS_WIDE_STACK && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        specdec__wide_tries(pairs, value, weight, weighted, low, high, tries, inverse, trial);
        return;
    }
#endif
    specdec__quant_try_two(pairs, value, weight, weighted, low, high, tries, inverse, trial);
}
#endif

/* --- which instruction sets are wanted ---------------------------------------------------------------------------- */

#ifdef SPECDEC_NO_SSE41
#define SPECDEC__WITH_SSE41 0
#else
#define SPECDEC__WITH_SSE41 1
#endif
#ifdef SPECDEC_NO_AVX2
#define SPECDEC__WITH_AVX2 0
#else
#define SPECDEC__WITH_AVX2 1
#endif
#ifdef SPECDEC_NO_AVXVNNI
#define SPECDEC__WITH_AVXVNNI 0
#else
#define SPECDEC__WITH_AVXVNNI 1
#endif
#ifdef SPECDEC_NO_AVX512
#define SPECDEC__WITH_AVX512 0
#else
#define SPECDEC__WITH_AVX512 1
#endif
#ifdef SPECDEC_NO_DOTPROD
#define SPECDEC__WITH_DOTPROD 0
#else
#define SPECDEC__WITH_DOTPROD 1
#endif
#ifdef SPECDEC_NO_I8MM
#define SPECDEC__WITH_I8MM 0
#else
#define SPECDEC__WITH_I8MM 1
#endif

/* --- the tables --------------------------------------------------------------------------------------------------- */

/* Is any type of a granule, with or without minimums, asked for? */
#define SPECDEC__GRANULE_ROW(number, name, block, bytes, granule, bits, minimum, ...) \
    || (SPECDEC__HAS(name) && (granule) == SPECDEC__GRANULE && (minimum) == SPECDEC__MINIMUM)
#define SPECDEC__GRANULE 16
#define SPECDEC__MINIMUM 0
enum { SPECDEC__HAS_16 = 0 SPECDEC__QUANT_TYPES(SPECDEC__GRANULE_ROW) };
#undef SPECDEC__MINIMUM
#define SPECDEC__MINIMUM 1
enum { SPECDEC__HAS_16M = 0 SPECDEC__QUANT_TYPES(SPECDEC__GRANULE_ROW) };
#undef SPECDEC__GRANULE
#define SPECDEC__GRANULE 32
enum { SPECDEC__HAS_32M = 0 SPECDEC__QUANT_TYPES(SPECDEC__GRANULE_ROW) };
#undef SPECDEC__GRANULE
#undef SPECDEC__MINIMUM

/* Enters one unpacker for all types. */
static void specdec__kernels_all_types(specdec__kernels *table, specdec__unpack_function *unpack)
{
    const specdec__quant_type *type = specdec__quant_types, *end = type + SPECDEC__COUNT(specdec__quant_types);

    for (; type < end; type++)
        table->unpack[type->number] = unpack;
}

/* Enters the dots of quantised types, by granule and minimum. */
static void specdec__kernels_dots(specdec__kernels *table, specdec__dot_function *dot16, specdec__dot_function *dot16m,
                                  specdec__dot_function *dot32, specdec__dot_function *dot32m)
{
    const specdec__quant_type *type = specdec__quant_types, *end = type + SPECDEC__COUNT(specdec__quant_types);

    for (; type < end; type++)
        if (type->granule == 16)
            table->dot[type->number] = type->has_minimum ? dot16m : dot16;
        else if (type->granule == 32)
            table->dot[type->number] = type->has_minimum ? dot32m : dot32;
}

#define SPECDEC__DOT_KERNELS(table, name) \
    specdec__kernels_dots(table, SPECDEC__HAS_16 ? specdec__##name##_16 : NULL, \
                          SPECDEC__HAS_16M ? specdec__##name##_16m : NULL, specdec__##name##_32, \
                          SPECDEC__HAS_32M ? specdec__##name##_32m : NULL)

/* Most types are unpacked by their decoders. The others have something faster: an unpacker of their own, or a kernel
   that multiplies without a panel. */
#define SPECDEC__ENTRY(member, number, function) \
    table->member[SPECDEC__TYPE_##number] = SPECDEC__HAS(number) ? function : NULL
#define SPECDEC__X86_ENTRY(isa, number) SPECDEC__ENTRY(unpack, number, specdec__##isa##_unpack_##number);
#define SPECDEC__X86_KERNELS(table, isa, unpack_isa) \
    do { \
        specdec__kernels_all_types(table, specdec__##unpack_isa##_unpack_any); \
        SPECDEC__ENTRY(multiply, Q4_0, specdec__##isa##_multiply_Q4_0); \
        SPECDEC__ENTRY(multiply, Q8_0, specdec__##isa##_multiply_Q8_0); \
        SPECDEC__ENTRY(multiply, Q4_K, specdec__##isa##_multiply_Q4_K); \
        SPECDEC__ENTRY(multiply, Q6_K, specdec__##isa##_multiply_Q6_K); \
        SPECDEC__ENTRY(unpack, IQ2_XS, specdec__##unpack_isa##_unpack_grid); \
        SPECDEC__ENTRY(unpack, IQ2_S, specdec__##unpack_isa##_unpack_grid); \
        SPECDEC__ENTRY(unpack, IQ3_XXS, specdec__##unpack_isa##_unpack_grid); \
        SPECDEC__ENTRY(unpack, IQ3_S, specdec__##unpack_isa##_unpack_grid); \
        SPECDEC__X86_UNPACKED(SPECDEC__X86_ENTRY, unpack_isa) \
    } while (0)

#define SPECDEC__AVX2_KERNELS(table, isa) \
    do { \
        SPECDEC__X86_KERNELS(table, isa, avx2); \
        SPECDEC__FLOAT_KERNELS(avx2); \
        specdec__kernels_dots(table, SPECDEC__HAS_16 ? specdec__##isa##_dot_16_signed : NULL, \
                              SPECDEC__HAS_16M ? specdec__##isa##_dot_16m : NULL, specdec__##isa##_dot_32_signed, \
                              SPECDEC__HAS_32M ? specdec__##isa##_dot_32m : NULL); \
        SPECDEC__ENTRY(dot, Q5_0, specdec__##isa##_dot_32); /* of unsigned codes, as they are unpacked */ \
        SPECDEC__ENTRY(dot, Q3_K, specdec__##isa##_dot_16); \
        (table)->name = #isa; \
    } while (0)

#define SPECDEC__KERNEL_ENTRY(isa, name, result, parameters) table->name = specdec__##isa##_##name;
#define SPECDEC__FLOAT_KERNELS(isa) \
    do { \
        table->name = #isa; \
        table->unpack[SPECDEC__TYPE_F32] = specdec__##isa##_unpack_f32; \
        table->unpack[SPECDEC__TYPE_F16] = specdec__##isa##_unpack_f16; \
        table->unpack[SPECDEC__TYPE_BF16] = specdec__##isa##_unpack_bf16; \
        table->dot[SPECDEC__TYPE_F32] = specdec__##isa##_dot_float; \
        table->dot[SPECDEC__TYPE_F16] = specdec__##isa##_dot_float; \
        table->dot[SPECDEC__TYPE_BF16] = specdec__##isa##_dot_float; \
        SPECDEC__KERNEL_LOOPS(SPECDEC__KERNEL_ENTRY, isa) \
        table->activate[SPECDEC__SILU] = table->silu; \
        table->activate[SPECDEC__GELU] = table->gelu; \
        table->activate[SPECDEC__GELU_EXACT] = table->gelu_exact; \
    } while (0)

/* The same with any table: see specdec__multiply_function. */
static void specdec__kernels_multiply(const specdec__kernels *kernels, const specdec__tiles *tiles, int blocks,
                                      specdec__panel *panels, const specdec__columns *x, int block, int column,
                                      int count, float *const *sums)
{
    const specdec__quant_type *type = tiles->type;
    const size_t step = (size_t)(SPECDEC__PANEL / type->block) * type->bytes * SPECDEC__ROWS;
    specdec__dot_function *dot = kernels->dot[type->number];
    int from, run, t;

    if (kernels->multiply[type->number]) {
        kernels->multiply[type->number](tiles, blocks, panels, x, block, column, count, sums);
        return;
    }
    for (t = 0; t < 2 && tiles->tile[t]; t++) {
        const unsigned char *tile = tiles->tile[t];

        if (!block)
            memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
        for (from = 0; from < blocks; from += run, tile += step) {
            run = specdec__min_int(SPECDEC__PANEL / 32, blocks - from);
            kernels->unpack[type->number](type, tile, run, panels);
            dot(panels, run, x, block + from, column, count, sums[t]);
        }
    }
}

/* Fills the table of plain C. */
static void specdec__kernels_scalar(specdec__kernels *table)
{
    specdec__kernels_all_types(table, specdec__unpack_codes);
    SPECDEC__DOT_KERNELS(table, scalar_dot);
    SPECDEC__FLOAT_KERNELS(scalar);
}

/* For instruction sets that every CPU has. */
static int specdec__cpu_always(void) { return 1; }

#ifdef SPECDEC__AVX512
/* Fills the table of SSE4.1. */
static void specdec__kernels_sse41(specdec__kernels *table)
{
    specdec__kernels_all_types(table, specdec__sse41_unpack_any);
    SPECDEC__FLOAT_KERNELS(sse41);
    SPECDEC__DOT_KERNELS(table, sse41_dot);
    SPECDEC__ENTRY(unpack, Q4_0, specdec__sse41_unpack_Q4_0);
    SPECDEC__ENTRY(unpack, Q4_K, specdec__sse41_unpack_Q4_K);
    SPECDEC__ENTRY(unpack, Q6_K, specdec__sse41_unpack_Q6_K);
    SPECDEC__ENTRY(unpack, Q8_0, specdec__sse41_unpack_Q8_0);
    SPECDEC__ENTRY(dot, Q4_0, specdec__sse41_dot_4bit);
    SPECDEC__ENTRY(dot, Q4_K, specdec__sse41_dot_4bitm);
    SPECDEC__ENTRY(dot, Q6_K, specdec__sse41_dot_6bit);
}

SPECDEC__TABLE void specdec__kernels_avx2(specdec__kernels *table);
SPECDEC__TABLE void specdec__kernels_avx512(specdec__kernels *table);
#ifdef SPECDEC__AVXVNNI
SPECDEC__TABLE void specdec__kernels_avxvnni(specdec__kernels *table);
#endif

#ifndef SPECDEC_KERNELS_APART
/* Fill the tables of AVX2, AVX-VNNI and AVX-512. */
void specdec__kernels_avx2(specdec__kernels *table)
{
    if (!SPECDEC__WITH_AVX2)
        return;
    SPECDEC__AVX2_KERNELS(table, avx2);
}

#ifdef SPECDEC__AVXVNNI
void specdec__kernels_avxvnni(specdec__kernels *table)
{
    if (!SPECDEC__WITH_AVXVNNI)
        return;
    SPECDEC__AVX2_KERNELS(table, avxvnni);
}
#endif

void specdec__kernels_avx512(specdec__kernels *table)
{
    if (!SPECDEC__WITH_AVX512)
        return;
    SPECDEC__X86_KERNELS(table, avx512, avx512);
    SPECDEC__FLOAT_KERNELS(avx512);
    SPECDEC__DOT_KERNELS(table, avx512_dot);
}
#endif

typedef struct specdec__cpuid {
    unsigned eax, ebx, ecx, edx;
} specdec__cpuid;

/* What an x86 CPU tells about itself: zeros where the leaf does not exist. */
static specdec__cpuid specdec__cpu_leaf(unsigned leaf, unsigned subleaf)
{
    specdec__cpuid r;

    if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx))
        memset(&r, 0, sizeof r);
    return r;
}

/* Which register files the operating system saves (XCR0). */
static unsigned specdec__cpu_saved(void)
{
    unsigned low, high;

    if (!(specdec__cpu_leaf(1, 0).ecx & 1u << 27))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Does the CPU have SSE4.1 and SSSE3? */
static int specdec__cpu_sse41(void)
{
    const unsigned wanted = 1u << 9 | 1u << 19; /* ssse3, sse4.1 */

    return (specdec__cpu_leaf(1, 0).ecx & wanted) == wanted;
}

/* Does the CPU have AVX2, FMA and F16C, and does the system save their registers? */
static int specdec__cpu_avx2(void)
{
    const unsigned wanted = 1u << 12 | 1u << 29; /* fma, f16c */

    return SPECDEC__OS_WIDE_STACK && (specdec__cpu_saved() & 6) == 6 &&
           (specdec__cpu_leaf(1, 0).ecx & wanted) == wanted && (specdec__cpu_leaf(7, 0).ebx & 1u << 5);
}

#ifdef SPECDEC__AVXVNNI
/* Does it have AVX-VNNI besides? */
static int specdec__cpu_avxvnni(void)
{
    return specdec__cpu_avx2() && specdec__cpu_leaf(7, 0).eax >= 1 && (specdec__cpu_leaf(7, 1).eax & 1u << 4);
}
#endif

/* Does it have AVX-512 with VNNI besides, and does the system save its registers? */
static int specdec__cpu_avx512(void)
{
    const unsigned wanted = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* avx512 f dq bw vl */
    specdec__cpuid leaf = specdec__cpu_leaf(7, 0);

    return specdec__cpu_avx2() && (specdec__cpu_saved() & 0xE6) == 0xE6 && (leaf.ebx & wanted) == wanted &&
           (leaf.ecx & 1u << 11);
}
#endif

#ifdef SPECDEC__NEON
#define SPECDEC__NEON_UNPACK_TABLE(table, isa) \
    do { \
        SPECDEC__ENTRY(unpack, Q4_0, specdec__##isa##_unpack_q4_0); \
        SPECDEC__ENTRY(unpack, Q4_1, specdec__##isa##_unpack_q4_1); \
        SPECDEC__ENTRY(unpack, Q5_0, specdec__##isa##_unpack_q5_0); \
        SPECDEC__ENTRY(unpack, Q5_1, specdec__##isa##_unpack_q5_1); \
        SPECDEC__ENTRY(unpack, Q8_0, specdec__##isa##_unpack_q8_0); \
        SPECDEC__ENTRY(unpack, Q4_K, specdec__##isa##_unpack_q4_k); \
        SPECDEC__ENTRY(unpack, Q5_K, specdec__##isa##_unpack_q5_k); \
        SPECDEC__ENTRY(unpack, Q6_K, specdec__##isa##_unpack_q6_k); \
        SPECDEC__ENTRY(unpack, IQ4_NL, specdec__##isa##_unpack_iq4_nl); \
        SPECDEC__ENTRY(unpack, IQ4_XS, specdec__##isa##_unpack_iq4_xs); \
    } while (0)

/* Fills the table of NEON. */
static void specdec__kernels_neon(specdec__kernels *table)
{
    specdec__kernels_all_types(table, specdec__neon_unpack_any);
    SPECDEC__FLOAT_KERNELS(neon);
    SPECDEC__DOT_KERNELS(table, neon_dot);
    SPECDEC__NEON_UNPACK_TABLE(table, neon);
}

/* Fills the table of NEON with dot products. */
static void specdec__kernels_dotprod(specdec__kernels *table)
{
    specdec__kernels_neon(table);
    SPECDEC__DOT_KERNELS(table, dotprod_dot);
    table->name = "dotprod";
}

/* Fills the table of NEON with matrix products. */
static void specdec__kernels_i8mm(specdec__kernels *table)
{
    specdec__kernels_all_types(table, specdec__i8mm_unpack_any);
    SPECDEC__FLOAT_KERNELS(neon);
    SPECDEC__NEON_UNPACK_TABLE(table, i8mm);
    SPECDEC__DOT_KERNELS(table, i8mm_dot);
    table->name = "i8mm";
}

/* Does the CPU have dot products? Yes if the compiler was told so; else the system says. */
static int specdec__cpu_dotprod(void)
{
#if defined(__ARM_FEATURE_DOTPROD)
    return 1;
#else
    return (specdec__os_arm_features(0) & 1ul << 20) != 0; /* asimddp */
#endif
}

/* The same for matrix products. */
static int specdec__cpu_i8mm(void)
{
#if defined(__ARM_FEATURE_MATMUL_INT8)
    return 1;
#else
    return (specdec__os_arm_features(1) & 1ul << 13) != 0; /* i8mm */
#endif
}
#endif

typedef void specdec__fill_function(specdec__kernels *table);

/* Instruction sets from the plainest to the best. fill is NULL where one was left out: nothing of it remains then. */
static const struct specdec__isa {
    const char *name;
    int (*present)(void);
    specdec__fill_function *fill;
} specdec__isas[] = {
    {"scalar", specdec__cpu_always, specdec__kernels_scalar},
#ifdef SPECDEC__AVX512
    {"sse41", specdec__cpu_sse41, SPECDEC__WITH_SSE41 ? specdec__kernels_sse41 : NULL},
    {"avx2", specdec__cpu_avx2, SPECDEC__WITH_AVX2 ? specdec__kernels_avx2 : NULL},
#ifdef SPECDEC__AVXVNNI
    {"avxvnni", specdec__cpu_avxvnni, SPECDEC__WITH_AVXVNNI ? specdec__kernels_avxvnni : NULL},
#endif
    {"avx512", specdec__cpu_avx512, SPECDEC__WITH_AVX512 ? specdec__kernels_avx512 : NULL},
#endif
#ifdef SPECDEC__NEON
    {"neon", specdec__cpu_always, specdec__kernels_neon},
    {"dotprod", specdec__cpu_dotprod, SPECDEC__WITH_DOTPROD ? specdec__kernels_dotprod : NULL},
    {"i8mm", specdec__cpu_i8mm, SPECDEC__WITH_I8MM ? specdec__kernels_i8mm : NULL},
#endif
};

/* Fills the table for an instruction set by name, NULL for the best that this CPU has. */
static specdec_result specdec__kernels_init(specdec__kernels *table, const char *name, specdec_error *error)
{
    int i;

    for (i = (int)SPECDEC__COUNT(specdec__isas) - 1; i >= 0; i--)
        if (specdec__isas[i].fill && (!name || strcmp(name, specdec__isas[i].name) == 0) &&
            specdec__isas[i].present()) {
            memset(table, 0, sizeof *table);
            specdec__isas[i].fill(table);
            return SPECDEC_OK;
        }
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "this CPU or build has no instruction set \"%s\"",
                         name ? name : "scalar");
}

/* =====================================================================================================================
 * >>gguf (private): reads GGUF v2 and v3 in place, trusting nothing; format: ggml/docs/gguf.md.
 *     May call: >>base >>quant
 * ================================================================================================================== */

SPECDEC__FOR_SIZE

static const unsigned char specdec__gguf_type_size[SPECDEC_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
static const char *const specdec__gguf_type_name[SPECDEC_GGUF_TYPES] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

#define SPECDEC__GGUF_MAX_TENSORS 4096   /* far above any dense model; bounds the time that a hostile file can take */
#define SPECDEC__GGUF_MAX_PAIRS 65536

typedef specdec_gguf specdec__gguf;
typedef specdec_gguf_value specdec__gguf_value;
typedef specdec_gguf_tensor specdec__gguf_tensor;

/* A place in the file that only moves forward; bad is set, for good, by the first read past the end. */
typedef struct specdec__cursor {
    const unsigned char *data;
    size_t size, at;
    int bad;
} specdec__cursor;

static specdec__cursor specdec__cursor_over(const unsigned char *data, size_t size)
{
    specdec__cursor c;

    c.data = data;
    c.size = size;
    c.at = 0;
    c.bad = 0;
    return c;
}

static const unsigned char *specdec__cursor_skip(specdec__cursor *c, uint64_t bytes)
{
    const unsigned char *from = c->data + c->at;

    if (c->bad || bytes > c->size - c->at) {
        c->bad = 1;
        return NULL;
    }
    c->at += (size_t)bytes;
    return from;
}

static uint32_t specdec__cursor_u32(specdec__cursor *c)
{
    const unsigned char *at = specdec__cursor_skip(c, 4);

    return at ? specdec__load_u32(at) : 0;
}

static uint64_t specdec__cursor_u64(specdec__cursor *c)
{
    const unsigned char *at = specdec__cursor_skip(c, 8);

    return at ? specdec__load_u64(at) : 0;
}

static specdec__bytes specdec__cursor_string(specdec__cursor *c)
{
    uint64_t size = specdec__cursor_u64(c);
    specdec__bytes out;

    out.data = specdec__cursor_skip(c, size);
    out.size = out.data ? (size_t)size : 0;
    return out;
}

/* Reads a value and moves past it; sets bad for unknown types, arrays of arrays and whatever reaches past the end. */
static specdec__gguf_value specdec__cursor_value(specdec__cursor *c)
{
    specdec__gguf_value value;
    size_t from;

    memset(&value, 0, sizeof value);
    value.type = specdec__cursor_u32(c);
    value.count = 1;
    if (value.type == SPECDEC_GGUF_ARRAY) {
        value.is_array = 1;
        value.type = specdec__cursor_u32(c);
        value.count = specdec__cursor_u64(c);
    }
    if (c->bad || value.type >= SPECDEC_GGUF_TYPES || value.type == SPECDEC_GGUF_ARRAY) {
        c->bad = 1;
        return value;
    }
    from = c->at;
    value.items = c->data + from;
    if (value.type != SPECDEC_GGUF_STRING) {
        size_t item = specdec__gguf_type_size[value.type];
        specdec__cursor_skip(c, value.count > UINT64_MAX / item ? UINT64_MAX : value.count * item);
    } else if (value.is_array) {
        uint64_t i;
        for (i = 0; i < value.count && !c->bad; i++)
            specdec__cursor_string(c);
    } else {
        specdec__bytes text = specdec__cursor_string(c);
        value.items = text.data;
        value.count = text.size;
        value.bytes = text.size;
        return value;
    }
    value.bytes = c->at - from;
    return value;
}

static int specdec__bytes_equal(specdec__bytes a, const char *text, size_t length)
{
    return a.size == length && memcmp(a.data, text, length) == 0;
}

static int specdec__bytes_are(specdec__bytes a, const char *text)
{
    return specdec__bytes_equal(a, text, strlen(text));
}

/* Reads one tensor record. Returns an error text or NULL. */
static const char *specdec__gguf_read_tensor(const specdec__gguf *gguf, specdec__cursor *c, specdec__gguf_tensor *out)
{
    uint64_t elements = 1, offset;
    uint32_t dimensions, i;
    size_t room = gguf->data_at <= gguf->file.size ? gguf->file.size - gguf->data_at : 0;

    memset(out, 0, sizeof *out);
    out->name = specdec__cursor_string(c);
    dimensions = specdec__cursor_u32(c);
    if (c->bad)
        return "is cut off";
    if (dimensions < 1 || dimensions > 4)
        return "has an impossible number of dimensions";
    out->dimensions = (int)dimensions;
    for (i = 0; i < 4; i++) {
        out->shape[i] = i < dimensions ? specdec__cursor_u64(c) : 1;
        if (!c->bad &&
            (out->shape[i] < 1 || out->shape[i] > (1u << 30) || elements > ((uint64_t)1 << 42) / out->shape[i]))
            return "has an impossible dimension";
        elements *= c->bad ? 1 : out->shape[i];
    }
    out->type = specdec__cursor_u32(c);
    offset = specdec__cursor_u64(c);
    if (c->bad)
        return "is cut off";
    if (!gguf->data_at)
        return NULL; /* first pass: where the data begins is not known yet */
    if (offset % gguf->alignment)
        return "is not aligned";
    if (offset > room)
        return "lies beyond the end of the file";
    out->data = gguf->file.data + gguf->data_at + (size_t)offset;
    out->size = specdec__quant_bytes(out->type, elements, out->shape[0]);
    if (out->size == SIZE_MAX)
        return "has rows that are no multiple of its block size";
    if (out->size > room - (size_t)offset)
        return "reaches beyond the end of the file";
    return NULL;
}

/* Reads the value of a metadata pair and moves past it. The file has been checked. */
static specdec__gguf_value specdec__gguf_read_value(const specdec__gguf *gguf, specdec__cursor *c)
{
    int i;

    for (i = 0; i < gguf->strings_count; i++)
        if (gguf->strings[i].from == c->at) {
            specdec__gguf_value value;

            memset(&value, 0, sizeof value);
            value.type = SPECDEC_GGUF_STRING;
            value.is_array = 1;
            value.count = specdec__load_u64(c->data + c->at + 8);
            value.items = c->data + c->at + 16;
            value.bytes = gguf->strings[i].to - c->at - 16;
            c->at = gguf->strings[i].to;
            return value;
        }
    return specdec__cursor_value(c);
}

/* Finds a metadata value by its key. Returns 1 when found. The file has been checked: nothing can fail. */
static int specdec__gguf_find(const specdec__gguf *gguf, const char *key, specdec__gguf_value *out)
{
    specdec__cursor c = specdec__cursor_over(gguf->file.data, gguf->file.size);
    uint64_t i;

    c.at = gguf->pairs_at;
    for (i = 0; i < gguf->pair_count; i++) {
        const int found = specdec__bytes_are(specdec__cursor_string(&c), key);
        const specdec__gguf_value value = specdec__gguf_read_value(gguf, &c);

        if (found) {
            *out = value;
            return 1;
        }
    }
    return 0;
}

/* Says that the value of a key is not what was wanted: of a kind ("an array of ", "a ", "") of a type. */
static specdec_result specdec__gguf_wrong_type(const char *key, const char *kind, const char *wanted,
                                               const specdec__gguf_value *value, specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s should be %s%s, the file has %s%s", key, kind, wanted,
                         value->is_array ? "an array of " : "", specdec__gguf_type_name[value->type]);
}

/* The integer at an address. One that is too large for int64_t becomes the largest int64_t. Returns 0 when the type is
   not one of integers. */
static int specdec__gguf_integer(uint32_t type, const unsigned char *at, int64_t *out)
{
    uint64_t wide;

    switch (type) {
    case SPECDEC_GGUF_U8: case SPECDEC_GGUF_BOOL: *out = at[0]; return 1;
    case SPECDEC_GGUF_I8: *out = (int8_t)at[0]; return 1;
    case SPECDEC_GGUF_U16: *out = specdec__load_u16(at); return 1;
    case SPECDEC_GGUF_I16: *out = (int16_t)specdec__load_u16(at); return 1;
    case SPECDEC_GGUF_U32: *out = specdec__load_u32(at); return 1;
    case SPECDEC_GGUF_I32: *out = (int32_t)specdec__load_u32(at); return 1;
    case SPECDEC_GGUF_I64: *out = (int64_t)specdec__load_u64(at); return 1;
    case SPECDEC_GGUF_U64:
        wide = specdec__load_u64(at);
        *out = wide > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)wide;
        return 1;
    default: return 0;
    }
}

/* An integer of any width in [low, high]; *out keeps its value when the key is absent. */
static SPECDEC__UNUSED specdec_result specdec__gguf_get_integer(const specdec__gguf *gguf, const char *key,
                                                                int64_t low, int64_t high,
                                                int64_t *out, specdec_error *error)
{
    specdec__gguf_value v;
    int64_t value;

    if (!specdec__gguf_find(gguf, key, &v))
        return SPECDEC_OK;
    if (v.is_array || !specdec__gguf_integer(v.type, v.items, &value))
        return specdec__gguf_wrong_type(key, "an ", "integer", &v, error);
    if (value < low || value > high)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", key);
    *out = value;
    return SPECDEC_OK;
}

/* A finite f32; *out keeps its value when the key is absent. */
static SPECDEC__UNUSED specdec_result specdec__gguf_get_float(const specdec__gguf *gguf, const char *key, float *out,
                                                              specdec_error *error)
{
    specdec__gguf_value v;
    float value;

    if (!specdec__gguf_find(gguf, key, &v))
        return SPECDEC_OK;
    if (v.is_array || v.type != SPECDEC_GGUF_F32)
        return specdec__gguf_wrong_type(key, "", "f32", &v, error);
    value = specdec__load_f32(v.items);
    if (!(value - value == 0))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is not finite", key);
    *out = value;
    return SPECDEC_OK;
}

/* A string; out->data is NULL when the key is absent. */
static SPECDEC__UNUSED specdec_result specdec__gguf_get_string(const specdec__gguf *gguf, const char *key,
                                                               specdec__bytes *out,
                                               specdec_error *error)
{
    specdec__gguf_value v;

    out->data = NULL;
    out->size = 0;
    if (!specdec__gguf_find(gguf, key, &v))
        return SPECDEC_OK;
    if (v.is_array || v.type != SPECDEC_GGUF_STRING)
        return specdec__gguf_wrong_type(key, "a ", "string", &v, error);
    out->data = v.items;
    out->size = v.bytes;
    return SPECDEC_OK;
}

/* An array with items of one type; out->items is NULL when the key is absent. Items are read with specdec__load_...,
   strings one after the other with specdec__cursor_string over (items, bytes). */
static SPECDEC__UNUSED specdec_result specdec__gguf_get_array(const specdec__gguf *gguf, const char *key, uint32_t type,
                                              specdec__gguf_value *out, specdec_error *error)
{
    memset(out, 0, sizeof *out);
    if (!specdec__gguf_find(gguf, key, out))
        return SPECDEC_OK;
    if (!out->is_array || out->type != type)
        return specdec__gguf_wrong_type(key, "an array of ", specdec__gguf_type_name[type], out, error);
    return SPECDEC_OK;
}

/* Walks the metadata pairs once and checks their bounds and types. */
static specdec_result specdec__gguf_check_pairs(specdec__gguf *gguf, specdec__cursor *c, specdec_error *error)
{
    uint64_t i;

    for (i = 0; i < gguf->pair_count; i++) {
        specdec__bytes key = specdec__cursor_string(c);
        const size_t from = c->at;
        specdec__gguf_value value;

        memset(&value, 0, sizeof value);
        if (!c->bad)
            value = specdec__cursor_value(c);
        if (c->bad)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                                 "metadata pair %llu (%.*s) is cut off or of an unknown type", (unsigned long long)i,
                                 (int)(key.size < 64 ? key.size : 64), key.data ? (const char *)key.data : "");
        if (value.is_array && value.type == SPECDEC_GGUF_STRING && gguf->strings_count < SPECDEC_GGUF_LONG) {
            gguf->strings[gguf->strings_count].from = from;
            gguf->strings[gguf->strings_count++].to = c->at;
        }
    }
    return SPECDEC_OK;
}

/* Walks the tensor records once and checks them. Called twice: before and after data_at is known. */
static specdec_result specdec__gguf_check_tensors(specdec__gguf *gguf, specdec__cursor *c, specdec_error *error)
{
    specdec__gguf_tensor tensor;
    uint64_t i;

    for (i = 0; i < gguf->tensor_count; i++) {
        const char *wrong = specdec__gguf_read_tensor(gguf, c, &tensor);

        if (wrong)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %llu (%.*s) %s", (unsigned long long)i,
                                 (int)(tensor.name.size < 64 ? tensor.name.size : 64),
                                 tensor.name.data ? (const char *)tensor.name.data : "", wrong);
    }
    return SPECDEC_OK;
}

/* Checks the whole structure of a GGUF file in memory; afterwards every offset in it may be trusted. */
static SPECDEC__UNUSED specdec_result specdec__gguf_open(specdec__gguf *gguf, specdec__bytes file, specdec_error *error)
{
    specdec__cursor c;
    specdec_result result;
    int64_t alignment = 32;
    uint32_t version;

    memset(gguf, 0, sizeof *gguf);
    gguf->file = file;
    c = specdec__cursor_over(file.data, file.size);
    if (file.size < 24 || memcmp(file.data, "GGUF", 4) != 0)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "not a GGUF file");
    c.at = 4;
    version = specdec__cursor_u32(&c);
    if (version != 2 && version != 3)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "GGUF version %u (2 and 3 are read)", version);
    gguf->tensor_count = specdec__cursor_u64(&c);
    gguf->pair_count = specdec__cursor_u64(&c);
    if (gguf->tensor_count > SPECDEC__GGUF_MAX_TENSORS || gguf->pair_count > SPECDEC__GGUF_MAX_PAIRS)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "impossible counts: %llu tensors, %llu metadata pairs",
                             (unsigned long long)gguf->tensor_count, (unsigned long long)gguf->pair_count);
    gguf->pairs_at = c.at;
    result = specdec__gguf_check_pairs(gguf, &c, error);
    if (result)
        return result;
    result = specdec__gguf_get_integer(gguf, "general.alignment", 1, 1 << 20, &alignment, error);
    if (result)
        return result;
    if (alignment & (alignment - 1))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "general.alignment is no power of two");
    gguf->alignment = (size_t)alignment;
    gguf->tensors_at = c.at;
    result = specdec__gguf_check_tensors(gguf, &c, error);
    if (result)
        return result;
    gguf->tensors_end = c.at;
    gguf->data_at = specdec__size_add(c.at, gguf->alignment - 1) & ~(gguf->alignment - 1);
    c.at = gguf->tensors_at;
    return specdec__gguf_check_tensors(gguf, &c, error);
}

/* Finds a tensor by name. Returns 0 absent, 1 found, 2 when the name occurs twice. */
static SPECDEC__UNUSED int specdec__gguf_find_tensor(const specdec__gguf *gguf, const char *name,
                                                     specdec__gguf_tensor *out)
{
    specdec__cursor c = specdec__cursor_over(gguf->file.data, gguf->file.size);
    uint64_t i;
    int found = 0;

    c.at = gguf->tensors_at;
    for (i = 0; i < gguf->tensor_count; i++) {
        size_t record = c.at;

        if (!specdec__bytes_are(specdec__cursor_string(&c), name)) {
            uint32_t dimensions = specdec__cursor_u32(&c);
            c.at += (size_t)dimensions * 8 + 12;
            continue;
        }
        if (found)
            return 2;
        found = 1;
        c.at = record;
        specdec__gguf_read_tensor(gguf, &c, out);
    }
    return found;
}

SPECDEC__FOR_SPEED

/* =====================================================================================================================
 * >>text (private): tokenizers, text out of tokens, stop strings, chat formats. May call: >>base >>gguf
 * ================================================================================================================== */

/* The tokenizers, by tokenizer.ggml.model. */
enum {
    SPECDEC__VOCAB_SPM, /* "llama": sentencepiece BPE, best score first */
    SPECDEC__VOCAB_BPE  /* "gpt2": byte-level BPE, lowest merge rank first */
};

#if defined(SPECDEC_NO_SPM) && defined(SPECDEC_NO_BPE)
#error "specdec.h: SPECDEC_NO_SPM and SPECDEC_NO_BPE together leave no tokenizer."
#endif

/* Is the tokenizer BPE? In a build with only one of the two the answer is a constant, and the compiler leaves out what
   only the other one needs. */
#if defined(SPECDEC_NO_SPM)
#define SPECDEC__VOCAB_IS_BPE(model) ((void)(model), 1)
#elif defined(SPECDEC_NO_BPE)
#define SPECDEC__VOCAB_IS_BPE(model) ((void)(model), 0)
#else
#define SPECDEC__VOCAB_IS_BPE(model) ((model) == SPECDEC__VOCAB_BPE)
#endif

/* Token types as tokenizer.ggml.token_type has them. */
enum {
    SPECDEC__TOKEN_UNDEFINED, SPECDEC__TOKEN_NORMAL, SPECDEC__TOKEN_UNKNOWN, SPECDEC__TOKEN_CONTROL,
    SPECDEC__TOKEN_USER_DEFINED, SPECDEC__TOKEN_UNUSED, SPECDEC__TOKEN_BYTE
};

#define SPECDEC__VOCAB_MAX_TOKENS (1 << 24)
#define SPECDEC__VOCAB_MAX_ENDS 16
#define SPECDEC__TEXT_MAX_BYTES (1u << 30) /* a longer text is refused; places in a text are 32 bits wide */
#define SPECDEC__TEXT_NONE UINT32_MAX
#define SPECDEC__TEXT_BLOCK 16             /* symbols that are searched one by one for the best pair */

/* Tokens that end a text wherever they exist as control or user-defined tokens. */
static const char *const specdec__vocab_end_texts[] = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>"};

/* A vocabulary. Texts, scores and types stay in the mapped file; only indexes are built. */
typedef struct specdec__vocab {
    int model;                    /* SPECDEC__VOCAB_... */
    const struct specdec__vocab_words *words; /* BPE only */
    uint32_t count;               /* tokens */
    uint32_t longest;             /* bytes of the longest token text */
    int32_t bos, eos, eot, eom, unknown; /* ids, -1: none */
    int32_t add_bos, add_eos, add_space_prefix; /* flags */
    int strips_space;             /* white space behind most special tokens is dropped */
    int cuts_at_space;            /* SPM: no token has U+2581 behind anything else: no merge crosses that border */
    const unsigned char *texts;   /* the string array in the file */
    size_t texts_size;
    const unsigned char *scores;  /* (count) f32, SPM only */
    const unsigned char *types;   /* (count) i32 or NULL */
    uint32_t *text_at;            /* (count) offsets into texts */
    uint32_t *slots;              /* (slot_mask + 1) open hash of id + 1; 0: empty */
    uint32_t slot_mask;
    uint32_t *merges;             /* (merge_count, 2) left and right id in order of rank; count: an unusable one */
    uint32_t *merge_slots;        /* (merge_mask + 1) open hash of rank + 1 */
    uint32_t merge_count, merge_mask;
    uint32_t *specials;           /* (special_count) unknown, control and user-defined tokens, longest text first */
    uint32_t special_count;
    int32_t *byte_token;          /* (256) id that stands for one byte, -1: none */
    int32_t ends[SPECDEC__VOCAB_MAX_ENDS];
    int end_count;
} specdec__vocab;

/* The bytes of a token as the file has them. */
static specdec__bytes specdec__vocab_text(const specdec__vocab *v, uint32_t id)
{
    const unsigned char *at = v->texts + v->text_at[id];
    specdec__bytes out;

    out.size = (size_t)specdec__load_u64(at);
    out.data = at + 8;
    return out;
}

/* The byte that a text <0x00> .. <0xFF> names, else -1. */
static int specdec__vocab_byte_of(specdec__bytes text)
{
    int value = 0, i;

    if (text.size != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>')
        return -1;
    for (i = 3; i < 5; i++) {
        int c = text.data[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* SPECDEC__TOKEN_... of a token with this text; in a file without types it is guessed from id and text. */
static int specdec__vocab_type_of(const specdec__vocab *v, uint32_t id, specdec__bytes text)
{
    int32_t i = (int32_t)id;

    if (v->types) {
        uint32_t type = specdec__load_u32(v->types + (size_t)id * 4);
        return type <= SPECDEC__TOKEN_BYTE ? (int)type : (int)SPECDEC__TOKEN_UNDEFINED;
    }
    if (i == v->bos || i == v->eos || i == v->eot || i == v->eom)
        return SPECDEC__TOKEN_CONTROL;
    if (i == v->unknown)
        return SPECDEC__TOKEN_UNKNOWN;
    if (!SPECDEC__VOCAB_IS_BPE(v->model) && specdec__vocab_byte_of(text) >= 0)
        return SPECDEC__TOKEN_BYTE;
    return SPECDEC__TOKEN_NORMAL;
}

static int specdec__vocab_type(const specdec__vocab *v, uint32_t id)
{
    return specdec__vocab_type_of(v, id, specdec__vocab_text(v, id));
}

static int specdec__vocab_is_special(int type)
{
    return type == SPECDEC__TOKEN_UNKNOWN || type == SPECDEC__TOKEN_CONTROL || type == SPECDEC__TOKEN_USER_DEFINED;
}

/* The token that is spelled so, or has this decimal id; -1: there is none. */
static int32_t specdec__vocab_named(const specdec__vocab *v, const char *name)
{
    const size_t length = strlen(name);
    uint32_t id;
    int64_t number = 0;
    size_t i;

    for (id = 0; id < v->count; id++) {
        specdec__bytes text = specdec__vocab_text(v, id);

        if (text.size == length && memcmp(text.data, name, length) == 0)
            return (int32_t)id;
    }
    for (i = 0; i < length && name[i] >= '0' && name[i] <= '9' && number < v->count; i++)
        number = number * 10 + (name[i] - '0');
    return length && i == length && number < v->count ? (int32_t)number : -1;
}

/* Does this token end the text? Ids outside the vocabulary do not. */
static SPECDEC__UNUSED int specdec__vocab_is_end(const specdec__vocab *v, int32_t id)
{
    int i;

    for (i = 0; i < v->end_count; i++)
        if (v->ends[i] == id)
            return 1;
    return 0;
}

/* --- characters --------------------------------------------------------------------------------------------------- */

/* Kinds of characters as the pre-tokenizers tell them apart: \p{L}, \p{N}, \s and the rest. */
enum { SPECDEC__TEXT_OTHER, SPECDEC__TEXT_LETTER, SPECDEC__TEXT_NUMBER, SPECDEC__TEXT_SPACE, SPECDEC__TEXT_END };

/* What the classes of the table below are: a kind, and where in a word such a character may stand. HEAD is the upper
   case part, [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]; TAIL is the lower case part, [\p{Ll}\p{Lm}\p{Lo}\p{M}]. */
enum { SPECDEC__TEXT_HEAD = 1, SPECDEC__TEXT_TAIL = 2 };
enum { SPECDEC__TEXT_UPPER = 5, SPECDEC__TEXT_LOWER, SPECDEC__TEXT_TURNS }; /* TURNS: upper, lower, upper ... */

static const struct {
    unsigned char kind, cases;
} specdec__text_class_facts[] = {{SPECDEC__TEXT_OTHER, 0},
                                 {SPECDEC__TEXT_LETTER, SPECDEC__TEXT_HEAD | SPECDEC__TEXT_TAIL}, /* no case */
                                 {SPECDEC__TEXT_NUMBER, 0},
                                 {SPECDEC__TEXT_SPACE, 0},
                                 {SPECDEC__TEXT_OTHER, SPECDEC__TEXT_HEAD | SPECDEC__TEXT_TAIL}, /* a mark */
                                 {SPECDEC__TEXT_LETTER, SPECDEC__TEXT_HEAD},
                                 {SPECDEC__TEXT_LETTER, SPECDEC__TEXT_TAIL}};

/* Runs of characters of one class: specdec__text_runs has (length - 1) << 3 | class, or for 32 characters and more
   31 << 3 | class and two bytes of length - 32; specdec__text_marks says where every 64th run begins. */
/* BEGIN unicode: written by tools/make-unicode.js, do not edit */
/* Unicode 17.0 */
static const unsigned char specdec__text_runs[] = {
    64, 35, 136, 3, 112, 74, 48, 205, 40, 206, 72, 3, 200, 3, 64, 1, 48, 10, 0, 6, 16, 2, 1, 0, 18, 0, 181, 0, 53, 190,
    0, 62, 255, 24, 0, 6, 127, 6, 255, 15, 0, 47, 14, 5, 39, 5, 6, 21, 14, 29, 6, 13, 6, 21, 22, 13, 6, 5, 55, 31, 6, 5,
    6, 13, 6, 13, 39, 5, 14, 1, 5, 22, 25, 13, 6, 13, 6, 5, 143, 6, 143, 6, 5, 39, 5, 255, 28, 0, 46, 13, 6, 13, 14, 5,
    6, 21, 79, 254, 36, 0, 9, 206, 137, 24, 89, 104, 33, 48, 1, 0, 1, 128, 252, 80, 0, 31, 1, 0, 5, 6, 8, 1, 22, 0, 5,
    40, 5, 0, 21, 0, 5, 0, 13, 6, 133, 0, 69, 254, 3, 0, 5, 14, 21, 22, 191, 30, 5, 6, 0, 5, 6, 13, 14, 253, 19, 0, 254,
    16, 0, 255, 2, 0, 0, 52, 255, 23, 0, 111, 6, 255, 64, 0, 0, 253, 6, 0, 8, 1, 40, 254, 9, 0, 56, 252, 13, 0, 0, 4, 0,
    12, 0, 12, 0, 4, 56, 209, 24, 25, 224, 84, 32, 249, 11, 0, 164, 74, 24, 9, 4, 249, 67, 0, 0, 1, 52, 8, 44, 9, 12, 0,
    28, 9, 74, 17, 8, 1, 120, 1, 4, 233, 212, 8, 249, 57, 0, 84, 1, 104, 74, 249, 1, 0, 68, 9, 24, 1, 8, 4, 8, 169, 28,
    1, 68, 1, 20, 1, 36, 136, 193, 20, 24, 81, 32, 185, 0, 49, 48, 68, 249, 10, 0, 188, 0, 252, 1, 0, 249, 22, 0, 20, 1,
    140, 1, 52, 73, 12, 8, 74, 0, 121, 20, 0, 57, 8, 9, 8, 169, 0, 49, 0, 1, 16, 25, 8, 4, 1, 52, 8, 12, 8, 20, 1, 56,
    4, 24, 9, 0, 17, 12, 8, 74, 9, 8, 42, 8, 1, 0, 4, 8, 20, 0, 41, 24, 9, 8, 169, 0, 49, 0, 9, 0, 9, 0, 9, 8, 4, 0, 36,
    24, 12, 8, 20, 16, 4, 48, 25, 0, 1, 48, 74, 12, 17, 4, 80, 20, 0, 65, 0, 17, 0, 169, 0, 49, 0, 9, 0, 33, 8, 4, 1,
    60, 0, 20, 0, 20, 8, 1, 112, 9, 12, 8, 74, 64, 1, 44, 0, 20, 0, 57, 8, 9, 8, 169, 0, 49, 0, 9, 0, 33, 8, 4, 1, 52,
    8, 12, 8, 20, 48, 20, 24, 9, 0, 17, 12, 8, 74, 0, 1, 42, 72, 4, 1, 0, 41, 16, 17, 0, 25, 16, 9, 0, 1, 0, 9, 16, 9,
    16, 17, 16, 89, 24, 36, 16, 20, 0, 28, 8, 1, 40, 4, 104, 98, 96, 36, 57, 0, 17, 0, 177, 0, 121, 8, 4, 1, 52, 0, 20,
    0, 28, 48, 12, 0, 17, 0, 9, 8, 9, 12, 8, 74, 56, 50, 0, 1, 20, 0, 57, 0, 17, 0, 177, 0, 73, 0, 33, 8, 4, 1, 52, 0,
    20, 0, 28, 48, 12, 32, 17, 0, 9, 12, 8, 74, 0, 9, 4, 88, 28, 65, 0, 17, 0, 249, 9, 0, 12, 1, 52, 0, 20, 0, 28, 1,
    32, 17, 4, 50, 17, 12, 8, 146, 0, 41, 0, 20, 0, 137, 16, 185, 0, 65, 0, 1, 8, 49, 16, 4, 24, 44, 0, 4, 0, 60, 40,
    74, 8, 12, 96, 249, 16, 0, 4, 9, 52, 32, 49, 60, 0, 74, 248, 7, 0, 9, 0, 1, 0, 33, 0, 185, 0, 1, 0, 73, 4, 9, 68, 1,
    8, 33, 0, 1, 0, 52, 0, 74, 8, 25, 248, 0, 0, 1, 176, 12, 40, 154, 0, 4, 0, 4, 0, 4, 24, 12, 57, 0, 249, 4, 0, 24,
    156, 0, 12, 33, 84, 0, 252, 4, 0, 64, 4, 248, 25, 0, 249, 11, 0, 156, 1, 74, 40, 41, 28, 25, 20, 1, 20, 9, 52, 17,
    28, 97, 92, 1, 4, 74, 28, 8, 253, 6, 0, 0, 5, 32, 5, 8, 254, 11, 0, 0, 1, 22, 249, 41, 1, 0, 25, 8, 49, 0, 1, 0, 25,
    8, 249, 9, 0, 0, 25, 8, 249, 1, 0, 0, 25, 8, 49, 0, 1, 0, 25, 8, 113, 0, 249, 25, 0, 0, 25, 8, 249, 35, 0, 8, 20,
    64, 154, 16, 121, 120, 253, 54, 0, 8, 46, 16, 249, 76, 2, 8, 129, 3, 201, 32, 249, 43, 0, 16, 18, 57, 48, 137, 28,
    64, 145, 20, 80, 137, 12, 88, 97, 0, 17, 0, 12, 88, 249, 20, 0, 252, 0, 0, 16, 1, 24, 1, 4, 8, 74, 40, 74, 128, 20,
    0, 4, 74, 40, 249, 57, 0, 48, 33, 12, 249, 2, 0, 4, 1, 32, 249, 38, 0, 72, 241, 0, 92, 24, 92, 72, 74, 233, 8, 33,
    80, 249, 12, 0, 24, 201, 40, 82, 248, 5, 0, 177, 36, 24, 249, 21, 0, 76, 0, 228, 8, 4, 74, 40, 74, 96, 1, 56, 252,
    14, 0, 8, 92, 152, 36, 249, 15, 0, 132, 57, 16, 74, 128, 68, 88, 20, 233, 100, 9, 74, 249, 12, 0, 108, 88, 249, 4,
    0, 156, 56, 74, 16, 17, 74, 249, 4, 0, 8, 70, 5, 6, 32, 253, 11, 0, 8, 21, 120, 20, 0, 164, 25, 4, 41, 4, 9, 20, 1,
    32, 254, 12, 0, 249, 31, 0, 102, 1, 254, 2, 0, 249, 5, 0, 252, 32, 0, 255, 118, 0, 62, 255, 66, 0, 62, 61, 46, 8,
    45, 8, 62, 61, 62, 61, 46, 8, 45, 8, 62, 0, 5, 0, 5, 0, 5, 0, 5, 62, 61, 110, 8, 62, 61, 62, 61, 62, 61, 38, 0, 14,
    37, 0, 6, 16, 22, 0, 14, 37, 16, 30, 8, 14, 29, 24, 62, 37, 32, 22, 0, 14, 37, 16, 83, 224, 11, 32, 3, 248, 15, 0,
    3, 120, 2, 1, 8, 42, 32, 1, 74, 40, 97, 248, 19, 0, 252, 1, 0, 128, 5, 24, 5, 8, 6, 21, 14, 21, 6, 0, 5, 16, 37, 40,
    5, 0, 5, 0, 5, 0, 29, 0, 6, 29, 6, 25, 6, 8, 14, 13, 32, 5, 30, 24, 6, 0, 250, 19, 0, 5, 6, 34, 248, 182, 2, 250,
    28, 0, 248, 46, 0, 170, 248, 86, 2, 234, 248, 76, 4, 253, 16, 0, 254, 16, 0, 5, 6, 21, 14, 55, 13, 31, 6, 5, 46, 9,
    13, 255, 68, 0, 6, 40, 31, 20, 5, 6, 64, 2, 8, 254, 6, 0, 0, 6, 32, 6, 8, 249, 24, 0, 48, 1, 112, 4, 177, 64, 49, 0,
    49, 0, 49, 0, 49, 0, 49, 0, 49, 0, 49, 0, 49, 0, 252, 0, 0, 248, 15, 0, 1, 248, 176, 1, 3, 24, 9, 2, 192, 66, 44, 0,
    33, 8, 18, 9, 24, 249, 54, 0, 8, 12, 8, 17, 0, 249, 58, 0, 0, 25, 32, 249, 11, 0, 0, 249, 62, 0, 16, 26, 72, 249, 0,
    0, 248, 16, 0, 121, 248, 0, 0, 74, 232, 58, 0, 114, 248, 0, 0, 74, 248, 7, 0, 114, 248, 32, 1, 249, 160, 25, 248,
    32, 0, 249, 109, 86, 248, 35, 0, 249, 14, 0, 8, 249, 237, 0, 16, 121, 74, 9, 152, 255, 14, 0, 1, 28, 0, 76, 0, 1,
    223, 9, 12, 249, 38, 0, 74, 12, 248, 5, 0, 65, 8, 111, 14, 255, 30, 0, 1, 62, 39, 79, 1, 8, 31, 1, 31, 14, 167, 29,
    6, 29, 135, 13, 39, 135, 152, 25, 5, 6, 17, 6, 49, 4, 17, 4, 25, 4, 177, 36, 24, 4, 16, 42, 72, 249, 20, 0, 88, 12,
    249, 18, 0, 140, 72, 74, 40, 140, 41, 16, 1, 0, 9, 4, 74, 217, 60, 8, 177, 100, 88, 225, 16, 28, 249, 15, 0, 108,
    104, 1, 74, 40, 33, 4, 73, 74, 33, 0, 249, 9, 0, 108, 64, 17, 4, 57, 12, 8, 74, 40, 177, 16, 1, 20, 249, 18, 0, 4,
    1, 20, 9, 12, 33, 12, 1, 4, 1, 184, 17, 8, 81, 36, 8, 17, 12, 72, 41, 8, 41, 8, 41, 64, 49, 0, 49, 0, 254, 11, 0, 0,
    25, 70, 1, 40, 254, 48, 0, 249, 3, 0, 60, 0, 12, 8, 74, 40, 249, 132, 43, 88, 177, 24, 249, 17, 0, 248, 228, 32,
    249, 78, 1, 8, 249, 74, 0, 248, 6, 0, 54, 88, 38, 32, 1, 4, 73, 0, 97, 0, 33, 0, 1, 0, 9, 0, 9, 0, 249, 76, 0, 248,
    1, 0, 249, 75, 1, 136, 249, 32, 0, 8, 249, 22, 0, 248, 8, 0, 89, 24, 124, 120, 124, 248, 32, 0, 33, 0, 249, 103, 0,
    144, 74, 48, 205, 40, 206, 80, 249, 57, 0, 16, 41, 8, 41, 8, 41, 8, 17, 248, 3, 0, 89, 0, 201, 0, 145, 0, 9, 0, 113,
    8, 105, 248, 2, 0, 249, 91, 0, 88, 250, 13, 0, 88, 250, 25, 0, 128, 10, 248, 81, 0, 4, 248, 98, 0, 225, 16, 249, 17,
    0, 112, 4, 210, 24, 249, 0, 0, 26, 64, 153, 2, 57, 2, 32, 249, 6, 0, 36, 32, 233, 8, 249, 4, 0, 24, 57, 0, 34, 248,
    10, 0, 253, 8, 0, 254, 8, 0, 249, 46, 0, 8, 74, 40, 253, 4, 0, 24, 254, 4, 0, 24, 249, 8, 0, 56, 249, 20, 0, 88, 85,
    0, 117, 0, 53, 0, 13, 0, 86, 0, 118, 0, 54, 0, 14, 16, 249, 20, 0, 88, 249, 23, 1, 64, 169, 72, 57, 184, 41, 0, 249,
    10, 0, 0, 65, 248, 37, 0, 41, 8, 1, 0, 249, 12, 0, 0, 9, 16, 1, 8, 177, 8, 58, 177, 8, 50, 241, 56, 66, 248, 16, 0,
    145, 0, 9, 32, 34, 169, 42, 24, 201, 40, 201, 248, 6, 0, 249, 24, 0, 24, 10, 9, 122, 8, 250, 14, 0, 1, 20, 0, 12,
    32, 28, 25, 0, 17, 0, 225, 8, 20, 24, 4, 66, 176, 225, 10, 0, 225, 18, 248, 0, 0, 57, 0, 217, 12, 24, 34, 120, 249,
    22, 0, 72, 169, 8, 58, 145, 32, 58, 137, 176, 50, 248, 48, 0, 249, 41, 0, 248, 23, 0, 253, 19, 0, 96, 254, 19, 0,
    48, 42, 249, 4, 0, 28, 56, 74, 40, 74, 41, 173, 16, 36, 0, 1, 174, 248, 186, 0, 242, 0, 249, 10, 0, 0, 12, 16, 9,
    120, 41, 248, 18, 0, 44, 225, 74, 1, 56, 169, 84, 26, 208, 137, 28, 248, 10, 0, 161, 50, 152, 177, 64, 20, 249, 21,
    0, 116, 80, 234, 4, 9, 12, 1, 64, 28, 249, 13, 0, 84, 48, 4, 96, 193, 48, 74, 40, 20, 249, 4, 0, 108, 0, 74, 24, 1,
    12, 1, 56, 249, 3, 0, 4, 8, 1, 64, 20, 249, 16, 0, 108, 25, 24, 28, 0, 12, 74, 1, 0, 1, 24, 154, 80, 137, 0, 193,
    92, 40, 4, 9, 4, 248, 30, 0, 49, 0, 1, 0, 25, 0, 113, 0, 73, 48, 249, 15, 0, 92, 32, 74, 40, 28, 0, 57, 8, 9, 8,
    169, 0, 49, 0, 9, 0, 33, 0, 12, 1, 52, 8, 12, 8, 20, 8, 1, 40, 4, 32, 33, 12, 8, 52, 16, 36, 80, 73, 0, 1, 8, 1, 0,
    249, 6, 0, 0, 1, 68, 0, 4, 8, 4, 0, 28, 0, 36, 1, 4, 1, 96, 12, 224, 249, 21, 0, 140, 25, 32, 74, 24, 4, 17, 232,
    249, 16, 0, 156, 9, 0, 1, 56, 74, 248, 134, 0, 249, 15, 0, 52, 8, 68, 176, 25, 12, 248, 2, 0, 249, 16, 0, 132, 16,
    1, 80, 74, 248, 6, 0, 249, 11, 0, 100, 1, 48, 74, 40, 154, 216, 209, 8, 116, 24, 90, 24, 49, 248, 153, 0, 249, 12,
    0, 116, 248, 69, 0, 253, 0, 0, 254, 0, 0, 146, 88, 57, 8, 1, 8, 57, 0, 9, 0, 185, 44, 0, 12, 8, 28, 1, 4, 1, 12, 88,
    74, 248, 38, 0, 57, 8, 249, 7, 0, 52, 8, 52, 1, 0, 1, 4, 208, 1, 76, 249, 8, 0, 52, 1, 28, 56, 4, 56, 1, 84, 249,
    14, 0, 124, 16, 1, 136, 249, 41, 0, 248, 71, 0, 60, 248, 56, 0, 249, 1, 0, 112, 74, 40, 65, 0, 249, 5, 0, 60, 0, 60,
    1, 112, 226, 32, 233, 8, 172, 0, 108, 248, 41, 0, 49, 0, 9, 0, 249, 6, 0, 44, 16, 4, 0, 12, 0, 52, 1, 4, 56, 74, 40,
    41, 0, 9, 0, 249, 0, 0, 36, 0, 12, 0, 36, 1, 48, 74, 40, 249, 12, 0, 24, 74, 248, 214, 0, 145, 28, 64, 12, 1, 4, 97,
    0, 249, 2, 0, 52, 16, 36, 96, 74, 4, 248, 53, 0, 1, 112, 162, 248, 11, 0, 249, 122, 3, 248, 70, 0, 250, 79, 0, 128,
    249, 164, 0, 248, 44, 10, 249, 65, 0, 112, 249, 16, 4, 120, 4, 41, 116, 72, 249, 123, 15, 32, 249, 39, 2, 248, 153,
    26, 233, 140, 74, 248, 166, 6, 249, 25, 2, 48, 241, 0, 74, 40, 249, 47, 0, 0, 74, 40, 233, 8, 36, 80, 249, 16, 0,
    52, 64, 25, 88, 74, 0, 50, 0, 161, 32, 145, 248, 144, 1, 249, 13, 0, 16, 74, 248, 166, 0, 253, 0, 0, 254, 0, 0, 178,
    64, 197, 8, 198, 248, 12, 0, 249, 43, 0, 24, 4, 1, 252, 23, 0, 48, 28, 97, 248, 32, 0, 9, 0, 1, 4, 80, 12, 9, 18,
    64, 249, 182, 28, 248, 9, 0, 249, 0, 0, 248, 65, 0, 249, 83, 0, 248, 221, 33, 25, 0, 49, 0, 9, 0, 249, 3, 1, 112, 1,
    224, 17, 8, 1, 104, 25, 56, 249, 108, 1, 248, 228, 8, 249, 75, 0, 32, 97, 16, 65, 48, 73, 16, 12, 248, 49, 16, 74,
    248, 230, 1, 252, 14, 0, 8, 180, 248, 254, 1, 36, 16, 44, 56, 60, 8, 52, 232, 28, 248, 116, 0, 20, 248, 91, 0, 154,
    88, 154, 248, 76, 0, 194, 248, 103, 0, 205, 206, 205, 54, 0, 142, 205, 206, 5, 0, 13, 8, 5, 8, 13, 8, 29, 0, 61, 30,
    0, 6, 0, 54, 0, 86, 205, 206, 13, 0, 29, 8, 61, 0, 53, 0, 206, 13, 0, 29, 0, 37, 0, 5, 16, 53, 0, 206, 205, 206,
    205, 206, 205, 206, 205, 206, 205, 206, 205, 222, 8, 197, 0, 198, 0, 46, 197, 0, 198, 0, 46, 197, 0, 198, 0, 46,
    197, 0, 198, 0, 46, 197, 0, 198, 0, 46, 5, 6, 8, 250, 18, 0, 248, 224, 1, 252, 23, 0, 24, 252, 18, 0, 56, 4, 104, 4,
    168, 36, 0, 116, 248, 48, 4, 78, 1, 158, 40, 46, 248, 181, 0, 52, 0, 132, 8, 52, 0, 12, 0, 36, 32, 249, 30, 0, 248,
    1, 0, 4, 248, 80, 0, 249, 13, 0, 16, 52, 49, 8, 74, 24, 1, 248, 33, 1, 233, 4, 128, 249, 12, 0, 28, 74, 248, 182, 1,
    217, 28, 74, 248, 182, 0, 233, 12, 1, 74, 248, 165, 0, 241, 0, 17, 4, 9, 4, 49, 12, 33, 4, 56, 9, 248, 192, 0, 49,
    0, 25, 0, 9, 0, 113, 0, 249, 165, 0, 8, 66, 52, 248, 9, 0, 253, 2, 0, 254, 2, 0, 52, 1, 24, 74, 248, 247, 2, 250,
    27, 0, 0, 18, 0, 26, 248, 44, 0, 250, 13, 0, 0, 114, 248, 162, 0, 25, 0, 209, 0, 9, 0, 1, 8, 1, 0, 73, 0, 25, 0, 1,
    0, 1, 40, 1, 24, 1, 0, 1, 0, 1, 0, 17, 0, 9, 0, 1, 8, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 9, 0, 1, 8, 25, 0, 49, 0, 25, 0,
    25, 0, 1, 0, 73, 0, 129, 32, 17, 0, 33, 0, 129, 248, 36, 2, 98, 248, 195, 10, 74, 248, 230, 3, 249, 192, 166, 248,
    0, 0, 249, 254, 16, 8, 249, 110, 22, 8, 249, 17, 29, 112, 249, 78, 2, 248, 130, 9, 249, 254, 1, 248, 194, 5, 249,
    43, 19, 32, 249, 10, 33, 248, 255, 255, 248, 255, 255, 248, 255, 255, 248, 255, 255, 248, 255, 255, 248, 255, 255,
    248, 255, 255, 248, 255, 255, 248, 255, 255, 248, 255, 255, 248, 48, 203, 252, 208, 0, 248, 255, 255, 248, 255, 255,
    248, 178, 253};

static const struct {
    uint32_t code, at;
} specdec__text_marks[] = {
    {0x0, 0}, {0x1b9, 68}, {0x3cf, 140}, {0x6fd, 224}, {0x9aa, 298}, {0xa75, 362}, {0xb70, 426}, {0xc70, 490},
    {0xd97, 556}, {0xf36, 626}, {0x128a, 706}, {0x17e0, 786}, {0x1b80, 866}, {0x1f5b, 952}, {0x210a, 1022},
    {0x2cf4, 1104}, {0x3196, 1186}, {0xa7dd, 1282}, {0xaa50, 1354}, {0xfb1d, 1438}, {0x10140, 1528}, {0x10600, 1624},
    {0x10a3b, 1704}, {0x10f28, 1790}, {0x11212, 1866}, {0x113b7, 1936}, {0x11800, 2018}, {0x11c09, 2106},
    {0x11f5a, 2184}, {0x16eb9, 2290}, {0x1d173, 2390}, {0x1d586, 2462}, {0x1e01b, 2538}, {0x1e94b, 2630},
    {0x1ee74, 2704}};
/* END unicode */

/* The class of a character: an index of specdec__text_class_facts. */
static int specdec__text_class(uint32_t code)
{
    const unsigned char *run;
    uint32_t first;
    size_t low = 0, high = SPECDEC__COUNT(specdec__text_marks);
    int found;

    while (high - low > 1) {
        size_t middle = (low + high) / 2;

        if (specdec__text_marks[middle].code <= code)
            low = middle;
        else
            high = middle;
    }
    run = specdec__text_runs + specdec__text_marks[low].at;
    first = specdec__text_marks[low].code;
    for (;;) {
        uint32_t length = 1u + (*run >> 3);

        found = *run++ & 7;
        if (length == 32) {
            length += specdec__load_u16(run);
            run += 2;
        }
        if (code - first < length)
            break;
        first += length;
    }
    if (found == SPECDEC__TEXT_TURNS)
        return (code - first) % 2 ? SPECDEC__TEXT_LOWER : SPECDEC__TEXT_UPPER;
    return found;
}

/* Bytes of the UTF-8 sequence that begins at text, 1..4, or minus the bytes present when it is cut off but could still
   become valid; 0 for a byte that begins nothing valid. length > 0. */
static int specdec__text_sequence(const unsigned char *text, size_t length)
{
    unsigned first = text[0], low = 0x80, high = 0xbf;
    int size = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    int i;

    if (first == 0xe0)
        low = 0xa0; /* shorter spellings exist */
    else if (first == 0xed)
        high = 0x9f; /* surrogates */
    else if (first == 0xf0)
        low = 0x90;
    else if (first == 0xf4)
        high = 0x8f; /* beyond U+10FFFF */
    for (i = 1; i < size; i++) {
        if ((size_t)i == length)
            return -i;
        if (text[i] < low || text[i] > high)
            return 0;
        low = 0x80;
        high = 0xbf;
    }
    return size;
}

typedef struct specdec__text_character {
    uint32_t code; /* U+FFFD for an invalid byte */
    int size;      /* bytes; 0 at the end of the text */
    int kind;      /* SPECDEC__TEXT_OTHER to SPECDEC__TEXT_END */
    int cases;     /* SPECDEC__TEXT_HEAD, SPECDEC__TEXT_TAIL, both or neither */
} specdec__text_character;

/* The character that begins at a place of a text. */
static specdec__text_character specdec__text_character_at(const unsigned char *text, size_t length, size_t at)
{
    specdec__text_character c;
    int found;

    c.code = 0xfffd;
    c.size = 0;
    c.kind = SPECDEC__TEXT_END;
    c.cases = 0;
    if (at >= length)
        return c;
    c.size = specdec__text_sequence(text + at, length - at);
    text += at;
    switch (c.size) {
    case 1: c.code = text[0]; break;
    case 2: c.code = (text[0] & 31u) << 6 | (text[1] & 63u); break;
    case 3: c.code = (text[0] & 15u) << 12 | (text[1] & 63u) << 6 | (text[2] & 63u); break;
    case 4: c.code = (text[0] & 7u) << 18 | (text[1] & 63u) << 12 | (text[2] & 63u) << 6 | (text[3] & 63u); break;
    default: c.size = 1; break;
    }
    found = specdec__text_class(c.code);
    c.kind = specdec__text_class_facts[found].kind;
    c.cases = specdec__text_class_facts[found].cases;
    return c;
}

/* The character that byte-level BPE writes for a byte: printable Latin-1 for itself, the rest from U+0100 on. */
static uint32_t specdec__text_byte_to_code(unsigned byte)
{
    if (byte <= 0x20)
        return 0x100 + byte;
    if (byte >= 0x7f && byte <= 0xa0)
        return 0x121 + byte - 0x7f;
    return byte == 0xad ? 0x143 : byte;
}

/* The inverse; -1 for a character that stands for no byte. */
static int specdec__text_code_to_byte(uint32_t code)
{
    if (code >= 0x100 && code <= 0x120)
        return (int)(code - 0x100);
    if (code >= 0x121 && code <= 0x142)
        return (int)(code - 0x121 + 0x7f);
    if (code == 0x143)
        return 0xad;
    return code < 0x100 && specdec__text_byte_to_code(code) == code ? (int)code : -1;
}

/* Spells one byte of plain text as token texts have it: SPM writes U+2581 for a space, BPE its character for the byte.
   Returns the bytes in out, 1..3. */
SPECDEC__INLINE size_t specdec__text_spell(int model, unsigned char byte, unsigned char out[3])
{
    uint32_t code = byte;

    if (!SPECDEC__VOCAB_IS_BPE(model)) {
        out[0] = byte == ' ' ? 0xe2 : byte;
        out[1] = 0x96;
        out[2] = 0x81;
        return byte == ' ' ? 3 : 1;
    }
    code = specdec__text_byte_to_code(byte);
    if (code < 0x80) {
        out[0] = byte;
        return 1;
    }
    out[0] = (unsigned char)(0xc0 | code >> 6);
    out[1] = (unsigned char)(0x80 | (code & 63));
    return 2;
}

/* --- words -------------------------------------------------------------------------------------------------------- */

/* Where a run of at most limit characters of one kind ends that begins at a place. */
static size_t specdec__text_skip(const unsigned char *text, size_t length, size_t at, int kind, size_t limit)
{
    while (limit--) {
        specdec__text_character c = specdec__text_character_at(text, length, at);

        if (c.kind != kind)
            break;
        at += (size_t)c.size;
    }
    return at;
}

/* 's 't 'm 'd 're 've 'll at the beginning of a text: its bytes, 0 when there is none. fold: upper case, too. */
static size_t specdec__text_contraction(const unsigned char *text, size_t length, int fold)
{
    int a = length > 1 && text[0] == '\'' ? text[1] : 0, b = length > 2 ? text[2] : 0;

    if (fold) {
        a |= 32;
        b |= 32;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* \s+(?!\S)|\s+ at the beginning of a text: white space that leaves its last character to what follows. */
static size_t specdec__text_white(const unsigned char *text, size_t length)
{
    size_t at = 0, last = 0;

    for (;;) {
        specdec__text_character c = specdec__text_character_at(text, length, at);

        if (c.kind != SPECDEC__TEXT_SPACE)
            return at == length || !last ? at : last;
        last = at;
        at += (size_t)c.size;
    }
}

/* The ways to cut text into words: functions that give the bytes of the first word of a text (length > 0). digits: of
   a number in one word at most. */
typedef size_t specdec__text_word_function(const unsigned char *text, size_t length, size_t digits);

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ (GPT-2). */
static size_t specdec__text_word_gpt2(const unsigned char *text, size_t length, size_t digits)
{
    size_t contraction = specdec__text_contraction(text, length, 0), from = text[0] == ' ';
    specdec__text_character c;

    (void)digits;
    if (contraction)
        return contraction;
    c = specdec__text_character_at(text, length, from);
    if (c.kind == SPECDEC__TEXT_SPACE || c.kind == SPECDEC__TEXT_END)
        return specdec__text_white(text, length);
    return specdec__text_skip(text, length, from, c.kind, SIZE_MAX);
}

/* The same where every digit is a text of its own, as are the parts between them (StarCoder, SmolLM). */
static size_t specdec__text_word_gpt2_digits(const unsigned char *text, size_t length, size_t digits)
{
    size_t at = specdec__text_skip(text, length, 0, SPECDEC__TEXT_NUMBER, 1), end;

    if (at)
        return at;
    end = specdec__text_word_gpt2(text, length, digits);
    while (at < length) {
        specdec__text_character c = specdec__text_character_at(text, length, at);

        if (c.kind == SPECDEC__TEXT_NUMBER)
            return specdec__text_word_gpt2(text, at, digits);
        if (at >= end && c.kind != SPECDEC__TEXT_SPACE)
            break;
        at += (size_t)c.size;
    }
    return end;
}

/* \p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ at the beginning of a text: what is left when no
   letters begin it. slashes: [\r\n/]* */
static size_t specdec__text_word_rest(const unsigned char *text, size_t length, size_t digits, int slashes)
{
    size_t from = text[0] == ' ', end = specdec__text_skip(text, length, 0, SPECDEC__TEXT_NUMBER, digits);

    if (end)
        return end;
    end = specdec__text_skip(text, length, from, SPECDEC__TEXT_OTHER, SIZE_MAX);
    if (end > from) {
        while (end < length && (text[end] == '\r' || text[end] == '\n' || (slashes && text[end] == '/')))
            end++;
        return end;
    }
    for (end = specdec__text_skip(text, length, 0, SPECDEC__TEXT_SPACE, SIZE_MAX); end; end--)
        if (text[end - 1] == '\r' || text[end - 1] == '\n')
            return end;
    return specdec__text_white(text, length);
}

/* [^\r\n\p{L}\p{N}]? at the beginning of a text: what letters may have before them, in bytes. */
static size_t specdec__text_before_letters(specdec__text_character c)
{
    return c.kind == SPECDEC__TEXT_LETTER || c.kind == SPECDEC__TEXT_NUMBER || c.code == '\r' || c.code == '\n'
               ? 0
               : (size_t)c.size;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+| and the rest (Llama 3: digits 3, Qwen 2: digits 1). */
static size_t specdec__text_word_modern(const unsigned char *text, size_t length, size_t digits)
{
    size_t contraction = specdec__text_contraction(text, length, 1);
    size_t from = specdec__text_before_letters(specdec__text_character_at(text, length, 0));
    size_t end = specdec__text_skip(text, length, from, SPECDEC__TEXT_LETTER, SIZE_MAX);

    if (contraction)
        return contraction;
    return end > from ? end : specdec__text_word_rest(text, length, digits, 0);
}

/* Where HEAD* TAIL+ ends that begins at a place; the place itself when there is none. */
static size_t specdec__text_head_and_tail(const unsigned char *text, size_t length, size_t at)
{
    specdec__text_character c = specdec__text_character_at(text, length, at);
    size_t end = at;

    for (; c.cases & SPECDEC__TEXT_HEAD; c = specdec__text_character_at(text, length, at)) {
        at += (size_t)c.size;
        if (c.cases & SPECDEC__TEXT_TAIL)
            end = at; /* as a tail of one character, if no better one follows */
    }
    for (; c.cases & SPECDEC__TEXT_TAIL; c = specdec__text_character_at(text, length, at))
        end = at += (size_t)c.size;
    return end;
}

/* [^\r\n\p{L}\p{N}]?HEAD*TAIL+C?|[^\r\n\p{L}\p{N}]?HEAD+TAIL*C?| and the rest with slashes, where C is
   (?i:'s|'t|'re|'ve|'m|'ll|'d) (GPT-4o: digits 3). The second one only ever meets upper case. */
static size_t specdec__text_word_cased(const unsigned char *text, size_t length, size_t digits)
{
    specdec__text_character c = specdec__text_character_at(text, length, 0);
    size_t from = specdec__text_before_letters(c), end = specdec__text_head_and_tail(text, length, from);
    int mark = from && c.cases; /* it can be a word by itself */

    if (end == from && !mark)
        end = specdec__text_skip(text, length, from, SPECDEC__TEXT_LETTER, SIZE_MAX);
    if (end > from || mark)
        return end + specdec__text_contraction(text + end, length - end, 1);
    return specdec__text_word_rest(text, length, digits, 1);
}

/* How a byte-level BPE cuts text into words, by tokenizer.ggml.pre. */
typedef struct specdec__vocab_words {
    const char *name;
    specdec__text_word_function *word;
    size_t digits;
    int whole_words;   /* a word that is a token is never built from merges */
    int add_bos;       /* the default for add_bos_token */
} specdec__vocab_words;

/* Which models have them: "smaug-bpe" SmolLM3; "dbrx" Phi-4 and Granite 4; "refact" Granite 3; "starcoder" older ones;
   "gpt-4o" Phi-4-mini. */
static const specdec__vocab_words specdec__vocab_words_known[] = {
    {"gpt-2", specdec__text_word_gpt2, 0, 0, 0},
    {"llama-bpe", specdec__text_word_modern, 3, 1, 1},
    {"llama3", specdec__text_word_modern, 3, 1, 1},
    {"llama-v3", specdec__text_word_modern, 3, 1, 1},
    {"smaug-bpe", specdec__text_word_modern, 3, 0, 0},
    {"dbrx", specdec__text_word_modern, 3, 0, 0},
    {"qwen2", specdec__text_word_modern, 1, 0, 0},
    {"deepseek-r1-qwen", specdec__text_word_modern, 1, 0, 0},
    {"gpt-4o", specdec__text_word_cased, 3, 0, 0},
    {"llama4", specdec__text_word_cased, 3, 0, 0},
    {"smollm", specdec__text_word_gpt2_digits, 1, 0, 0},
    {"starcoder", specdec__text_word_gpt2_digits, 1, 0, 0},
    {"refact", specdec__text_word_gpt2_digits, 1, 0, 0}};

/* --- vocabulary: looking up --------------------------------------------------------------------------------------- */

SPECDEC__INLINE uint32_t specdec__vocab_hash_byte(uint32_t hash, unsigned char byte)
{
    return (hash ^ byte) * 16777619u;
}

SPECDEC__INLINE uint32_t specdec__vocab_hash_end(uint32_t hash)
{
    return (hash ^ hash >> 15) * 0x2c1b3c6du ^ hash >> 13;
}

static uint32_t specdec__vocab_hash(uint32_t hash, specdec__bytes part)
{
    size_t i;

    for (i = 0; i < part.size; i++)
        hash = specdec__vocab_hash_byte(hash, part.data[i]);
    return hash;
}

/* The id of the token whose text is a, followed by b unless that is NULL, spelled as in the file; -1: none. */
static int32_t specdec__vocab_find_spelled(const specdec__vocab *v, specdec__bytes a, const specdec__bytes *b)
{
    uint32_t hash = specdec__vocab_hash(0, a), slot;
    size_t size = a.size + (b ? b->size : 0);

    if (b)
        hash = specdec__vocab_hash(hash, *b);
    for (slot = specdec__vocab_hash_end(hash) & v->slot_mask; v->slots[slot]; slot = (slot + 1) & v->slot_mask) {
        specdec__bytes text = specdec__vocab_text(v, v->slots[slot] - 1);

        if (text.size == size && memcmp(text.data, a.data, a.size) == 0 &&
            (!b || memcmp(text.data + a.size, b->data, b->size) == 0))
            return (int32_t)(v->slots[slot] - 1);
    }
    return -1;
}

/* A stretch of plain text; the byte at place 0 is a space that is not there when prefix is 1. */
typedef struct specdec__text_run {
    const unsigned char *text;
    size_t length; /* with the prefix */
    size_t prefix; /* 0 or 1 */
} specdec__text_run;

SPECDEC__INLINE unsigned char specdec__text_run_byte(const specdec__text_run *run, size_t at)
{
    return at < run->prefix ? (unsigned char)' ' : run->text[at - run->prefix];
}

/* Are the bytes [from, from + length) of a run, spelled, this text? */
static int specdec__text_run_equals(const specdec__text_run *run, size_t from, size_t length, int model,
                                    specdec__bytes text)
{
    unsigned char spelled[3];
    size_t i, at = 0;

    for (i = from; i < from + length; i++) {
        size_t size = specdec__text_spell(model, specdec__text_run_byte(run, i), spelled);

        if (size > text.size - at || memcmp(text.data + at, spelled, size) != 0)
            return 0;
        at += size;
    }
    return at == text.size;
}

/* The id of the token that the bytes [from, from + length) of a run spell; -1: none. */
static int32_t specdec__vocab_find(const specdec__vocab *v, const specdec__text_run *run, size_t from, size_t length)
{
    unsigned char spelled[3];
    uint32_t hash = 0, slot;
    size_t i;

    if (length > v->longest)
        return -1;
    for (i = from; i < from + length; i++) {
        size_t j, size = specdec__text_spell(v->model, specdec__text_run_byte(run, i), spelled);

        for (j = 0; j < size; j++)
            hash = specdec__vocab_hash_byte(hash, spelled[j]);
    }
    for (slot = specdec__vocab_hash_end(hash) & v->slot_mask; v->slots[slot]; slot = (slot + 1) & v->slot_mask) {
        uint32_t id = v->slots[slot] - 1;

        if (specdec__text_run_equals(run, from, length, v->model, specdec__vocab_text(v, id)))
            return (int32_t)id;
    }
    return -1;
}

SPECDEC__INLINE uint32_t specdec__vocab_pair_hash(uint32_t left, uint32_t right)
{
    return specdec__vocab_hash_end(left * 0x9e3779b1u ^ right * 0x85ebca77u ^ right >> 9);
}

/* The rank of the merge (left, right), lower is earlier; SPECDEC__TEXT_NONE: there is none. */
static uint32_t specdec__vocab_rank(const specdec__vocab *v, uint32_t left, uint32_t right)
{
    uint32_t slot = specdec__vocab_pair_hash(left, right) & v->merge_mask;

    for (; v->merge_slots[slot]; slot = (slot + 1) & v->merge_mask) {
        uint32_t rank = v->merge_slots[slot] - 1;

        if (v->merges[2 * (size_t)rank] == left && v->merges[2 * (size_t)rank + 1] == right)
            return rank;
    }
    return SPECDEC__TEXT_NONE;
}

SPECDEC__FOR_SIZE
/* --- vocabulary: reading ------------------------------------------------------------------------------------------ */

/* What the file holds, checked, before the indexes are built. */
typedef struct specdec__vocab_source {
    specdec__gguf_value tokens, scores, types, merges;
} specdec__vocab_source;

/* An id in the vocabulary, or -1; *out keeps its value when the key is absent; a default that a small vocabulary does
   not have becomes -1. */
static specdec_result specdec__vocab_get_id(const specdec__vocab *v, const specdec__gguf *gguf, const char *key,
                                            int32_t *out, specdec_error *error)
{
    int64_t id = *out < (int64_t)v->count ? *out : -1;
    specdec_result result = specdec__gguf_get_integer(gguf, key, INT64_MIN, INT64_MAX, &id, error);

    if (result)
        return result;
    if (id == UINT32_MAX)
        id = -1; /* how some converters write "none" */
    if (id < -1 || id >= (int64_t)v->count)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is not a token of this vocabulary of %u", key, v->count);
    *out = (int32_t)id;
    return SPECDEC_OK;
}

/* Refuses a way to cut words that is not in the table; says which ones are. */
static specdec_result specdec__vocab_unknown_words(specdec__bytes name, specdec_error *error)
{
    char known[SPECDEC_ERROR_TEXT_SIZE];
    specdec__writer w = specdec__writer_to(known, sizeof known);
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__vocab_words_known); i++) {
        specdec__write_bytes(&w, ", ", i ? 2 : 0);
        specdec__write_string(&w, specdec__vocab_words_known[i].name);
    }
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tokenizer.ggml.pre is %.*s; known are %s",
                         (int)(name.size < 64 ? name.size : 64), (const char *)name.data, known);
}

/* Reads tokenizer.ggml.model and .pre, and sets the defaults that go with them. */
static specdec_result specdec__vocab_read_kind(specdec__vocab *v, const specdec__gguf *gguf, specdec_error *error)
{
    specdec__bytes model, words;
    specdec_result result = specdec__gguf_get_string(gguf, "tokenizer.ggml.model", &model, error);
    size_t i;

    if (!result)
        result = specdec__gguf_get_string(gguf, "tokenizer.ggml.pre", &words, error);
    if (result)
        return result;
    if (!model.data)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is missing", "tokenizer.ggml.model");
    v->bos = v->eos = v->eot = v->eom = v->unknown = -1;
#if defined(SPECDEC_NO_SPM) || defined(SPECDEC_NO_BPE)
    if (specdec__bytes_are(model, SPECDEC__VOCAB_IS_BPE(0) ? "llama" : "gpt2"))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "tokenizer.ggml.model is %.*s, which %s leaves out of this build", (int)model.size,
                             (const char *)model.data, SPECDEC__VOCAB_IS_BPE(0) ? "SPECDEC_NO_SPM" : "SPECDEC_NO_BPE");
#endif
    if (!SPECDEC__VOCAB_IS_BPE(SPECDEC__VOCAB_SPM) && specdec__bytes_are(model, "llama")) {
        v->model = SPECDEC__VOCAB_SPM;
        v->unknown = 0;
        v->bos = 1;
        v->eos = 2;
        v->add_bos = v->add_space_prefix = 1;
        return SPECDEC_OK;
    }
    if (!SPECDEC__VOCAB_IS_BPE(SPECDEC__VOCAB_BPE) || !specdec__bytes_are(model, "gpt2"))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tokenizer.ggml.model is %.*s (llama and gpt2 are read)",
                             (int)(model.size < 64 ? model.size : 64), (const char *)model.data);
    v->model = SPECDEC__VOCAB_BPE;
    for (i = 0; i < SPECDEC__COUNT(specdec__vocab_words_known) && !v->words; i++)
        if (!words.data || specdec__bytes_are(words, specdec__vocab_words_known[i].name))
            v->words = &specdec__vocab_words_known[i];
    if (!v->words)
        return specdec__vocab_unknown_words(words, error);
    v->add_bos = v->words->add_bos;
    return SPECDEC_OK;
}

/* Phi-3's own tokenizer drops white space behind special tokens. Its vocabulary in GGUF does not say so; the model's
   name, "Phi3", "phi-3-mini", "Phi 3.5", is all there is. */
static int specdec__vocab_is_phi3(const specdec__gguf *gguf)
{
    specdec__bytes name;
    size_t i;

    if (specdec__gguf_get_string(gguf, "general.name", &name, NULL) || !name.data)
        return 0;
    for (i = 0; i + 4 <= name.size; i++) {
        const unsigned char *at = name.data + i;
        int dash = i + 5 <= name.size && (at[3] == '-' || at[3] == ' ' || at[3] == '_');

        if ((at[0] | 32) == 'p' && (at[1] | 32) == 'h' && (at[2] | 32) == 'i' && at[3 + dash] == '3')
            return 1;
    }
    return 0;
}

/* Does this special token take the white space behind it with it? */
static int specdec__vocab_strips(const specdec__vocab *v, specdec__bytes text)
{
    return v->strips_space && !specdec__bytes_are(text, "<unk>") && !specdec__bytes_are(text, "<s>") &&
           !specdec__bytes_are(text, "<|endoftext|>");
}

/* Where ids of special tokens, and flags, go in a specdec__vocab. */
static const struct {
    const char *key;
    unsigned short at;
    unsigned char is_flag;
} specdec__vocab_id_table[] = {
    {"tokenizer.ggml.bos_token_id", offsetof(specdec__vocab, bos), 0},
    {"tokenizer.ggml.eos_token_id", offsetof(specdec__vocab, eos), 0},
    {"tokenizer.ggml.eot_token_id", offsetof(specdec__vocab, eot), 0},
    {"tokenizer.ggml.eom_token_id", offsetof(specdec__vocab, eom), 0},
    {"tokenizer.ggml.unknown_token_id", offsetof(specdec__vocab, unknown), 0},
    {"tokenizer.ggml.add_bos_token", offsetof(specdec__vocab, add_bos), 1},
    {"tokenizer.ggml.add_eos_token", offsetof(specdec__vocab, add_eos), 1},
    {"tokenizer.ggml.add_space_prefix", offsetof(specdec__vocab, add_space_prefix), 1}};

/* Reads the ids of special tokens and the flags. */
static specdec_result specdec__vocab_read_ids(specdec__vocab *v, const specdec__gguf *gguf, specdec_error *error)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__vocab_id_table); i++) {
        const char *key = specdec__vocab_id_table[i].key;
        int32_t *out = (int32_t *)(void *)((unsigned char *)v + specdec__vocab_id_table[i].at);
        specdec_result result;
        int64_t flag = *out;

        if (specdec__vocab_id_table[i].is_flag) {
            result = specdec__gguf_get_integer(gguf, key, 0, 1, &flag, error);
            *out = (int32_t)flag;
        } else {
            result = specdec__vocab_get_id(v, gguf, key, out, error);
        }
        if (result)
            return result;
    }
    return SPECDEC_OK;
}

/* Says that an array has not an item for every token. */
static specdec_result specdec__vocab_wrong_count(const char *key, uint64_t items, uint32_t tokens, specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s has %llu items for %u tokens", key, (unsigned long long)items,
                         tokens);
}

/* Reads scores (SPM), types and merges (BPE), and checks that they are there, of the right type and long enough. */
static specdec_result specdec__vocab_read_arrays(specdec__vocab *v, const specdec__gguf *gguf,
                                                 specdec__vocab_source *source, specdec_error *error)
{
    specdec_result result;
    uint32_t i;

    result = specdec__gguf_get_array(gguf, "tokenizer.ggml.scores", SPECDEC_GGUF_F32, &source->scores, error);
    if (!result && !(specdec__gguf_find(gguf, "tokenizer.ggml.token_type", &source->types) && source->types.is_array &&
                     source->types.type == SPECDEC_GGUF_U32))
        result = specdec__gguf_get_array(gguf, "tokenizer.ggml.token_type", SPECDEC_GGUF_I32, &source->types, error);
    if (!result)
        result = specdec__gguf_get_array(gguf, "tokenizer.ggml.merges", SPECDEC_GGUF_STRING, &source->merges, error);
    if (result)
        return result;
    if (source->types.items && source->types.count < v->count)
        return specdec__vocab_wrong_count("tokenizer.ggml.token_type", source->types.count, v->count, error);
    v->types = source->types.items;
    if (SPECDEC__VOCAB_IS_BPE(v->model)) {
        if (!source->merges.items || source->merges.count > SPECDEC__VOCAB_MAX_TOKENS)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tokenizer.ggml.merges is %s",
                                 source->merges.items ? "impossibly long" : "missing");
        v->merge_count = (uint32_t)source->merges.count;
        return SPECDEC_OK;
    }
    if (!source->scores.items || source->scores.count < v->count)
        return specdec__vocab_wrong_count("tokenizer.ggml.scores", source->scores.count, v->count, error);
    v->scores = source->scores.items;
    for (i = 0; i < v->count; i++)
        if ((specdec__load_u32(v->scores + (size_t)i * 4) & 0x7fffffffu) > 0x7f800000u)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "the score of token %u is not a number", i);
    return SPECDEC_OK;
}

/* Does a text have U+2581 behind anything but U+2581? */
static int specdec__vocab_space_inside(specdec__bytes text)
{
    size_t i;
    int was_space = 1;

    for (i = 0; i < text.size; i++) {
        int is_space = i + 3 <= text.size && memcmp(text.data + i, "\xe2\x96\x81", 3) == 0;

        if (is_space && !was_space)
            return 1;
        was_space = is_space;
        i += is_space ? 2 : 0;
    }
    return 0;
}

/* The byte that a token stands for on its own, -1: none. SPM: <0x41>; BPE: the one character that spells it. */
static int specdec__vocab_single_byte(const specdec__vocab *v, specdec__bytes text)
{
    specdec__text_character c;

    if (!SPECDEC__VOCAB_IS_BPE(v->model))
        return specdec__vocab_byte_of(text);
    c = specdec__text_character_at(text.data, text.size, 0);
    return c.size && (size_t)c.size == text.size ? specdec__text_code_to_byte(c.code) : -1;
}

/* Walks over all token texts once, and notes what can be known without indexes. */
static void specdec__vocab_survey(specdec__vocab *v)
{
    specdec__cursor c = specdec__cursor_over(v->texts, v->texts_size);
    uint32_t id;

    v->cuts_at_space = 1;
    for (id = 0; id < v->count; id++) {
        specdec__bytes text = specdec__cursor_string(&c);

        if (text.size > v->longest)
            v->longest = (uint32_t)text.size;
        if (specdec__vocab_space_inside(text))
            v->cuts_at_space = 0;
        v->special_count += text.size && specdec__vocab_is_special(specdec__vocab_type_of(v, id, text));
    }
}

/* The mask of a hash table that is at most three quarters full. */
static uint32_t specdec__vocab_mask(uint32_t count)
{
    uint32_t size = 16;

    while (size / 4 * 3 < count)
        size *= 2;
    return size - 1;
}

/* Takes the memory of all indexes. */
static specdec_result specdec__vocab_take(specdec__vocab *v, specdec__arena *arena, specdec_error *error)
{
    v->slot_mask = specdec__vocab_mask(v->count);
    v->byte_token = SPECDEC__TAKE(arena, int32_t, 256);
    v->text_at = SPECDEC__TAKE(arena, uint32_t, v->count);
    v->slots = SPECDEC__TAKE(arena, uint32_t, v->slot_mask + 1);
    v->specials = SPECDEC__TAKE(arena, uint32_t, v->special_count);
    if (SPECDEC__VOCAB_IS_BPE(v->model)) {
        v->merge_mask = specdec__vocab_mask(v->merge_count);
        v->merges = SPECDEC__TAKE(arena, uint32_t, (size_t)v->merge_count * 2);
        v->merge_slots = SPECDEC__TAKE(arena, uint32_t, v->merge_mask + 1);
    }
    if (arena->used == SIZE_MAX)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "no room for a vocabulary of %u tokens", v->count);
    return SPECDEC_OK;
}

/* Fills byte_token, text_at, the hash of plain tokens (the first of equal texts wins) and the unsorted list of special
   ones. Unknown, control and byte tokens never come out of plain text, so the hash leaves them out. */
static void specdec__vocab_index_tokens(specdec__vocab *v)
{
    specdec__cursor c = specdec__cursor_over(v->texts, v->texts_size);
    uint32_t id, specials = 0;

    memset(v->byte_token, 0xff, 256 * sizeof *v->byte_token);
    for (id = 0; id < v->count; id++) {
        specdec__bytes text;
        uint32_t slot;
        int type, byte;

        v->text_at[id] = (uint32_t)c.at;
        text = specdec__cursor_string(&c);
        type = specdec__vocab_type_of(v, id, text);
        byte = specdec__vocab_single_byte(v, text);
        if (byte >= 0 && v->byte_token[byte] < 0)
            v->byte_token[byte] = (int32_t)id;
        if (text.size && specdec__vocab_is_special(type))
            v->specials[specials++] = id;
        if (!text.size || type == SPECDEC__TOKEN_UNKNOWN || type == SPECDEC__TOKEN_CONTROL ||
            (type == SPECDEC__TOKEN_BYTE && !SPECDEC__VOCAB_IS_BPE(v->model)) ||
            specdec__vocab_find_spelled(v, text, NULL) >= 0)
            continue;
        slot = specdec__vocab_hash_end(specdec__vocab_hash(0, text)) & v->slot_mask;
        while (v->slots[slot])
            slot = (slot + 1) & v->slot_mask;
        v->slots[slot] = id + 1;
    }
}

/* Longest text first; of equal lengths the lower id (Shell's sort). */
static void specdec__vocab_sort_specials(specdec__vocab *v)
{
    uint32_t gap, i;

    for (gap = v->special_count / 2; gap; gap = gap == 2 ? 1 : (uint32_t)((uint64_t)gap * 5 / 11))
        for (i = gap; i < v->special_count; i++) {
            uint32_t id = v->specials[i], j = i;
            size_t size = specdec__vocab_text(v, id).size;

            for (; j >= gap; j -= gap) {
                uint32_t other = v->specials[j - gap];
                size_t other_size = specdec__vocab_text(v, other).size;

                if (other_size > size || (other_size == size && other < id))
                    break;
                v->specials[j] = other;
            }
            v->specials[j] = id;
        }
}

static void specdec__vocab_add_end(specdec__vocab *v, int32_t id)
{
    if (id >= 0 && !specdec__vocab_is_end(v, id) && v->end_count < SPECDEC__VOCAB_MAX_ENDS)
        v->ends[v->end_count++] = id;
}

/* The tokens that end a text: those the file names and the well-known ones. */
static void specdec__vocab_find_ends(specdec__vocab *v)
{
    uint32_t i;
    size_t j;

    specdec__vocab_add_end(v, v->eos);
    specdec__vocab_add_end(v, v->eot);
    specdec__vocab_add_end(v, v->eom);
    for (i = 0; i < v->special_count; i++)
        for (j = 0; j < SPECDEC__COUNT(specdec__vocab_end_texts); j++)
            if (v->specials[i] != (uint32_t)v->unknown &&
                specdec__bytes_are(specdec__vocab_text(v, v->specials[i]), specdec__vocab_end_texts[j]))
                specdec__vocab_add_end(v, (int32_t)v->specials[i]);
}

/* The merges, "left right" each, in order of rank. One that names no token is passed over; of equal ones the first
   wins. */
static void specdec__vocab_index_merges(specdec__vocab *v, const specdec__gguf_value *merges)
{
    specdec__cursor c = specdec__cursor_over(merges->items, merges->bytes);
    uint32_t rank;

    for (rank = 0; rank < v->merge_count; rank++) {
        specdec__bytes text = specdec__cursor_string(&c), left = text, right = text;
        const unsigned char *space = NULL;
        uint32_t *pair = v->merges + 2 * (size_t)rank, slot;
        int32_t a = -1, b = -1;

        if (text.size > 1)
            space = (const unsigned char *)memchr(text.data + 1, ' ', text.size - 1);
        if (space) {
            left.size = (size_t)(space - text.data);
            right.data = space + 1;
            right.size = text.size - left.size - 1;
            a = specdec__vocab_find_spelled(v, left, NULL);
            b = specdec__vocab_find_spelled(v, right, NULL);
        }
        pair[0] = pair[1] = v->count;
        if (a < 0 || b < 0 || specdec__vocab_find_spelled(v, left, &right) < 0 ||
            specdec__vocab_rank(v, (uint32_t)a, (uint32_t)b) != SPECDEC__TEXT_NONE)
            continue;
        pair[0] = (uint32_t)a;
        pair[1] = (uint32_t)b;
        slot = specdec__vocab_pair_hash(pair[0], pair[1]) & v->merge_mask;
        while (v->merge_slots[slot])
            slot = (slot + 1) & v->merge_mask;
        v->merge_slots[slot] = rank + 1;
    }
}

/* Reads and checks the vocabulary of a file and builds its indexes in the arena. The file must outlive v. While the
   arena only counts, the same checks are made and the same bytes taken, but v cannot be used.
   Errors: FORMAT, UNSUPPORTED (another tokenizer), MEMORY. */
static SPECDEC__UNUSED specdec_result specdec__vocab_init(specdec__vocab *v, const specdec__gguf *gguf,
                                                          specdec__arena *arena, specdec_error *error)
{
    specdec__vocab_source source;
    specdec_result result;

    memset(v, 0, sizeof *v);
    memset(&source, 0, sizeof source);
    result = specdec__vocab_read_kind(v, gguf, error);
    if (!result)
        result = specdec__gguf_get_array(gguf, "tokenizer.ggml.tokens", SPECDEC_GGUF_STRING, &source.tokens, error);
    if (result)
        return result;
    if (!source.tokens.items || source.tokens.count < 1 || source.tokens.count > SPECDEC__VOCAB_MAX_TOKENS ||
        source.tokens.bytes > UINT32_MAX)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tokenizer.ggml.tokens is %s",
                             !source.tokens.items || source.tokens.count < 1 ? "missing or empty" : "impossibly long");
    v->count = (uint32_t)source.tokens.count;
    v->texts = source.tokens.items;
    v->texts_size = source.tokens.bytes;
    v->strips_space = specdec__vocab_is_phi3(gguf);
    result = specdec__vocab_read_ids(v, gguf, error);
    if (!result)
        result = specdec__vocab_read_arrays(v, gguf, &source, error);
    if (result)
        return result;
    specdec__vocab_survey(v);
    result = specdec__vocab_take(v, arena, error);
    if (result || !arena->base)
        return result;
    specdec__vocab_index_tokens(v);
    specdec__vocab_sort_specials(v);
    specdec__vocab_find_ends(v);
    if (SPECDEC__VOCAB_IS_BPE(v->model))
        specdec__vocab_index_merges(v, &source.merges);
    return SPECDEC_OK;
}

enum { SPECDEC__VOCAB_DIFFERENT, SPECDEC__VOCAB_PADDED, SPECDEC__VOCAB_SAME };

/* Is a token there only to round up the vocabulary? */
static int specdec__vocab_is_padding(const specdec__vocab *v, uint32_t id)
{
    static const char *const begins[] = {"[PAD",   "<pad",    "[unused",    "<unused",
                                         "<dummy", "<|dummy", "<|reserved", "<extra_id"};
    specdec__bytes text = specdec__vocab_text(v, id);
    size_t i;

    if (!text.size || specdec__vocab_type(v, id) == SPECDEC__TOKEN_UNUSED)
        return 1;
    for (i = 0; i < SPECDEC__COUNT(begins); i++)
        if (text.size >= strlen(begins[i]) && memcmp(text.data, begins[i], strlen(begins[i])) == 0)
            return 1;
    return 0;
}

/* May a draft with vocabulary a serve a target with vocabulary b? SAME: equal tokenizers, texts and counts. PADDED: the
   longer one only has unused tokens behind the end of the shorter one, whose count is then *first_different. DIFFERENT:
   *first_different is the first id that differs (0 when the tokenizers are of different kinds). */
static SPECDEC__UNUSED int specdec__vocab_compare(const specdec__vocab *a, const specdec__vocab *b,
                                                  uint32_t *first_different)
{
    const specdec__vocab *longer = a->count > b->count ? a : b;
    uint32_t id, shared = a->count < b->count ? a->count : b->count;

    *first_different = 0;
    if (a->model != b->model)
        return SPECDEC__VOCAB_DIFFERENT;
    for (id = 0; id < longer->count; id++) {
        *first_different = id;
        if (id < shared) {
            specdec__bytes text = specdec__vocab_text(a, id), other = specdec__vocab_text(b, id);
            if (!specdec__bytes_equal(text, (const char *)other.data, other.size))
                return SPECDEC__VOCAB_DIFFERENT;
        } else if (!specdec__vocab_is_padding(longer, id)) {
            return SPECDEC__VOCAB_DIFFERENT;
        }
    }
    *first_different = shared;
    return a->count == b->count ? SPECDEC__VOCAB_SAME : SPECDEC__VOCAB_PADDED;
}

/* Bytes of the first stretch of a text (length > 0) that can be merged on its own. */
static size_t specdec__text_stretch(const specdec__vocab *v, const unsigned char *text, size_t length)
{
    size_t at = 0;
    int was_space = 1;

    if (SPECDEC__VOCAB_IS_BPE(v->model))
        return v->words->word(text, length, v->words->digits);
    if (!v->cuts_at_space)
        return length;
    while (at < length) {
        size_t size = text[at] == ' ' ? 1 : length - at >= 3 && memcmp(text + at, "\xe2\x96\x81", 3) == 0 ? 3 : 0;

        if (size && !was_space)
            break;
        was_space = size > 0;
        at += size ? size : 1;
    }
    return at;
}

SPECDEC__FOR_SPEED

/* --- tokenizing: merges ------------------------------------------------------------------------------------------- */

/* Where tokens go. count goes on counting when there is no more room. */
typedef struct specdec__text_sink {
    int32_t *tokens;
    size_t capacity, count;
    int after_unknown; /* the last token was the unknown one: SPM writes one for several in a row */
} specdec__text_sink;

static void specdec__text_emit(specdec__text_sink *sink, int32_t id)
{
    if (sink->count < sink->capacity)
        sink->tokens[sink->count] = id;
    sink->count++;
    sink->after_unknown = 0;
}

/* The state of merging one run of n bytes; a symbol is named by the place of its first byte. 12.5 bytes per byte. */
typedef struct specdec__text_merger {
    const specdec__vocab *v;
    specdec__text_run run;
    uint32_t *span;  /* (n) bytes of a symbol, at its first and at its last byte */
    uint32_t *token; /* (n) id of a symbol, or none */
    uint32_t *key;   /* (n) urgency of merging a symbol with the next one: lower is sooner; none at other places */
    uint32_t *best;  /* (2 blocks) tournament of places: the best of each block from [blocks] on, of all in [1] */
    size_t blocks;
} specdec__text_merger;

/* A score as a key: higher scores give lower keys, never SPECDEC__TEXT_NONE. */
static uint32_t specdec__text_score_key(const specdec__vocab *v, uint32_t id)
{
    uint32_t bits = specdec__load_u32(v->scores + (size_t)id * 4);

    if (bits == 0x80000000u)
        bits = 0; /* -0 equals 0 */
    return bits >> 31 ? bits : 0x7fffffffu - bits;
}

/* The key of merging the symbol at a place with the one behind it. */
static uint32_t specdec__text_pair_key(const specdec__text_merger *m, size_t at)
{
    size_t next = at + m->span[at];
    int32_t id;

    if (next >= m->run.length)
        return SPECDEC__TEXT_NONE;
    if (SPECDEC__VOCAB_IS_BPE(m->v->model)) {
        if (m->token[at] == SPECDEC__TEXT_NONE || m->token[next] == SPECDEC__TEXT_NONE)
            return SPECDEC__TEXT_NONE;
        return specdec__vocab_rank(m->v, m->token[at], m->token[next]);
    }
    id = specdec__vocab_find(m->v, &m->run, at, (size_t)m->span[at] + m->span[next]);
    return id < 0 ? SPECDEC__TEXT_NONE : specdec__text_score_key(m->v, (uint32_t)id);
}

/* The place with the lower key; of equal ones the left. */
SPECDEC__INLINE uint32_t specdec__text_better(const specdec__text_merger *m, uint32_t a, uint32_t b)
{
    if (m->key[a] != m->key[b])
        return m->key[a] < m->key[b] ? a : b;
    return a < b ? a : b;
}

/* Finds the best place of a block anew. */
static void specdec__text_refresh_block(specdec__text_merger *m, size_t block)
{
    size_t at = block * SPECDEC__TEXT_BLOCK, end = at + SPECDEC__TEXT_BLOCK;
    uint32_t best = (uint32_t)at;

    for (end = end < m->run.length ? end : m->run.length; at < end; at++)
        best = specdec__text_better(m, best, (uint32_t)at);
    m->best[m->blocks + block] = best;
}

static void specdec__text_set_key(specdec__text_merger *m, size_t at, uint32_t key)
{
    size_t node = m->blocks + at / SPECDEC__TEXT_BLOCK;

    m->key[at] = key;
    specdec__text_refresh_block(m, at / SPECDEC__TEXT_BLOCK);
    for (node /= 2; node; node /= 2)
        m->best[node] = specdec__text_better(m, m->best[2 * node], m->best[2 * node + 1]);
}

/* Lays out the first symbols: characters for SPM, bytes for BPE. */
static void specdec__text_first_symbols(specdec__text_merger *m)
{
    size_t n = m->run.length, at, size = 1, node;

    for (at = 0; at < n; at += size) {
        unsigned char byte = specdec__text_run_byte(&m->run, at);
        int32_t id;

        if (SPECDEC__VOCAB_IS_BPE(m->v->model)) {
            id = m->v->byte_token[byte];
        } else {
            if (byte >= 0x80) {
                int sequence = specdec__text_sequence(m->run.text + at - m->run.prefix, n - at);
                size = sequence > 0 ? (size_t)sequence : 1;
            } else {
                size = 1;
            }
            id = specdec__vocab_find(m->v, &m->run, at, size);
        }
        for (node = at; node < at + size; node++)
            m->key[node] = SPECDEC__TEXT_NONE;
        m->span[at] = m->span[at + size - 1] = (uint32_t)size;
        m->token[at] = id < 0 ? SPECDEC__TEXT_NONE : (uint32_t)id;
    }
    for (at = 0; at < n; at += m->span[at])
        m->key[at] = specdec__text_pair_key(m, at);
    for (node = 0; node < m->blocks; node++)
        specdec__text_refresh_block(m, node);
    for (node = m->blocks - 1; node; node--)
        m->best[node] = specdec__text_better(m, m->best[2 * node], m->best[2 * node + 1]);
}

/* Merges the most urgent pair until there is none. */
static void specdec__text_merge(specdec__text_merger *m)
{
    uint32_t at;

    for (at = m->best[1]; m->key[at] != SPECDEC__TEXT_NONE; at = m->best[1]) {
        size_t next = at + m->span[at], size = (size_t)m->span[at] + m->span[next];

        m->span[at] = m->span[at + size - 1] = (uint32_t)size;
        m->token[at] = (uint32_t)specdec__vocab_find(m->v, &m->run, at, size);
        specdec__text_set_key(m, next, SPECDEC__TEXT_NONE);
        specdec__text_set_key(m, at, specdec__text_pair_key(m, at));
        if (at) {
            size_t before = at - m->span[at - 1];
            specdec__text_set_key(m, before, specdec__text_pair_key(m, before));
        }
    }
}

/* Writes a symbol that is no token. Where the vocabulary has all of its bytes as tokens: those. Else SPM writes the
   unknown token, if there is one, and BPE writes nothing (StarCoder's has no tokens for bytes that UTF-8 never has). */
static void specdec__text_emit_bytes(const specdec__text_merger *m, size_t at, specdec__text_sink *sink)
{
    unsigned char spelled[3];
    size_t i, j, size, known = 1, bpe = SPECDEC__VOCAB_IS_BPE(m->v->model);
    int pass;

    for (pass = 0; pass < 2 && known; pass++)
        for (i = at; i < at + m->span[at]; i++) {
            spelled[0] = specdec__text_run_byte(&m->run, i);
            size = bpe ? 1 : specdec__text_spell(m->v->model, spelled[0], spelled);
            for (j = 0; j < size; j++)
                if (m->v->byte_token[spelled[j]] < 0)
                    known = 0;
                else if (pass)
                    specdec__text_emit(sink, m->v->byte_token[spelled[j]]);
        }
    if (known || bpe || m->v->unknown < 0 || sink->after_unknown)
        return;
    specdec__text_emit(sink, m->v->unknown);
    sink->after_unknown = 1;
}

/* Scratch bytes that merging a run of n bytes takes. */
static size_t specdec__text_merge_bytes(size_t n)
{
    return specdec__size_multiply(specdec__size_add(specdec__size_multiply(n, 3), (n / SPECDEC__TEXT_BLOCK + 1) * 2),
                                  sizeof(uint32_t));
}

/* Tokens of one run. scratch is aligned for uint32_t. */
static specdec_result specdec__text_tokenize_run(const specdec__vocab *v, const specdec__text_run *run,
                                                 specdec__text_sink *sink, uint32_t *scratch, size_t scratch_size,
                                                 specdec_error *error)
{
    specdec__text_merger m;
    size_t at, n = run->length;

    if (v->words && v->words->whole_words) {
        int32_t id = specdec__vocab_find(v, run, 0, n);

        if (id >= 0) {
            specdec__text_emit(sink, id);
            return SPECDEC_OK;
        }
    }
    if (specdec__text_merge_bytes(n) > scratch_size)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY,
                             "a word of %zu bytes needs %zu bytes of scratch, %zu are left",
                             n, specdec__text_merge_bytes(n), scratch_size);
    m.v = v;
    m.run = *run;
    m.span = scratch;
    m.token = scratch + n;
    m.key = scratch + 2 * n;
    m.best = scratch + 3 * n;
    m.blocks = (n + SPECDEC__TEXT_BLOCK - 1) / SPECDEC__TEXT_BLOCK;
    specdec__text_first_symbols(&m);
    specdec__text_merge(&m);
    for (at = 0; at < n; at += m.span[at])
        if (m.token[at] != SPECDEC__TEXT_NONE)
            specdec__text_emit(sink, (int32_t)m.token[at]);
        else
            specdec__text_emit_bytes(&m, at, sink);
    return SPECDEC_OK;
}

/* --- tokenizing: texts -------------------------------------------------------------------------------------------- */

/* Text up to end in which special tokens from the given one on (in order of specials) are still to be looked for. */
typedef struct specdec__text_frame {
    uint32_t end, special;
} specdec__text_frame;

/* Scratch bytes with which specdec__tokenize can take any text of so many bytes: about 13 per byte. Less is enough when
   the longest word (BPE), or text up to the next space (SPM), is shorter than the text. */
static SPECDEC__UNUSED size_t specdec__tokenize_scratch(const specdec__vocab *v, size_t length)
{
    size_t frames = (v->special_count < length ? v->special_count : length) + 1;

    return specdec__size_add(specdec__size_add(specdec__text_merge_bytes(specdec__size_add(length, 1)),
                                               specdec__size_multiply(frames, sizeof(specdec__text_frame))),
                             3 * sizeof(uint32_t)); /* for alignment */
}

/* Tokens of a text without special tokens; prefix: 1 to put a space before it. */
static specdec_result specdec__text_tokenize_plain(const specdec__vocab *v, const unsigned char *text, size_t length,
                                                   size_t prefix, specdec__text_sink *sink, uint32_t *scratch,
                                                   size_t scratch_size, specdec_error *error)
{
    while (length) {
        specdec__text_run run;
        size_t size = specdec__text_stretch(v, text, length);
        specdec_result result;

        run.text = text;
        run.prefix = prefix;
        run.length = size + prefix;
        result = specdec__text_tokenize_run(v, &run, sink, scratch, scratch_size, error);
        if (result)
            return result;
        text += size;
        length -= size;
        prefix = 0;
    }
    return SPECDEC_OK;
}

/* The first place in [from, end) of a text where a token's text stands; end when there is none. */
static size_t specdec__text_search(const unsigned char *text, size_t from, size_t end, specdec__bytes what)
{
    while (end - from >= what.size) {
        const unsigned char *at = (const unsigned char *)memchr(text + from, what.data[0], end - from - what.size + 1);

        if (!at)
            return end;
        from = (size_t)(at - text);
        if (memcmp(at, what.data, what.size) == 0)
            return from;
        from++;
    }
    return end;
}

/* Cuts a text at special tokens, the longest anywhere in it first, then the next longest in what is left, and tokenizes
   the rest. frames grow from the beginning of scratch; runs are merged in what lies behind them. */
static specdec_result specdec__text_tokenize_parts(const specdec__vocab *v, const unsigned char *text, size_t length,
                                                   int flags, specdec__text_sink *sink, uint32_t *scratch, size_t words,
                                                   specdec_error *error)
{
    specdec__text_frame *frames = (specdec__text_frame *)(void *)scratch;
    size_t depth = 1, at = 0, room = words * sizeof(uint32_t) / sizeof *frames;
    int after_special = 1;

    if (!room)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "the scratch memory is too small");
    frames[0].end = (uint32_t)length;
    frames[0].special = 0;
    while (depth) {
        specdec__text_frame *frame = &frames[depth - 1];

        if (at == frame->end) {
            depth--;
        } else if (frame->special == v->special_count) {
            size_t prefix = !SPECDEC__VOCAB_IS_BPE(v->model) && v->add_space_prefix && after_special;
            specdec_result result =
                specdec__text_tokenize_plain(v, text + at, frame->end - at, prefix, sink, scratch + 2 * depth,
                                             (room - depth) * sizeof *frames, error);
            if (result)
                return result;
            at = frame->end;
            after_special = 0;
        } else {
            uint32_t id = v->specials[frame->special];
            specdec__bytes what = specdec__vocab_text(v, id);
            int wanted = (flags & SPECDEC_TOKENIZE_SPECIAL) ||
                         specdec__vocab_type(v, id) == SPECDEC__TOKEN_USER_DEFINED;
            size_t found = wanted ? specdec__text_search(text, at, frame->end, what) : frame->end;

            if (found == frame->end) {
                frame->special++;
            } else if (found == at) {
                specdec__text_emit(sink, (int32_t)id);
                at += what.size;
                while (at < frame->end && specdec__vocab_strips(v, what) && memchr(" \t\r\n\v\f", text[at], 6))
                    at++;
                after_special = 1;
            } else if (depth == room) {
                return specdec__fail(error, SPECDEC_ERROR_MEMORY, "the scratch memory is too small");
            } else {
                frames[depth].end = (uint32_t)found;
                frames[depth++].special = frame->special + 1;
            }
        }
    }
    return SPECDEC_OK;
}

/* Tokens of a text, which may hold any bytes. flags: SPECDEC_TOKENIZE_... *count is the number of tokens, at most 4
   per byte and 5 more, even when that is above capacity (BUFFER; the first capacity ones are written). scratch: see
   specdec__tokenize_scratch; MEMORY when it is too small. Time grows as n log n. Follows sentencepiece (Kudo and
   Richardson 2018) and byte-level BPE (Radford et al. 2019) as llama.cpp has them; bytes that are no UTF-8 count as
   characters that are neither letter, number nor space. */
static SPECDEC__UNUSED specdec_result specdec__tokenize(const specdec__vocab *v, const char *text, size_t length,
                                                        int flags, int32_t *tokens, size_t capacity, size_t *count,
                                                        void *scratch, size_t scratch_size, specdec_error *error)
{
    size_t skip = (size_t)(0 - (uintptr_t)scratch) & (sizeof(uint32_t) - 1);
    size_t words = scratch && scratch_size > skip ? (scratch_size - skip) / sizeof(uint32_t) : 0;
    uint32_t *aligned = words ? (uint32_t *)(void *)((unsigned char *)scratch + skip) : NULL;
    specdec__text_sink sink;
    specdec_result result = SPECDEC_OK;

    sink.tokens = tokens;
    sink.capacity = capacity;
    sink.count = 0;
    sink.after_unknown = 0;
    *count = 0;
    if (length > SPECDEC__TEXT_MAX_BYTES)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a text of %zu bytes is too long", length);
    if ((flags & SPECDEC_TOKENIZE_BEGIN) && v->add_bos && v->bos >= 0)
        specdec__text_emit(&sink, v->bos);
    if (length)
        result = specdec__text_tokenize_parts(v, (const unsigned char *)text, length, flags, &sink, aligned, words,
                                              error);
    if (result)
        return result;
    if ((flags & SPECDEC_TOKENIZE_END) && v->add_eos && v->eos >= 0)
        specdec__text_emit(&sink, v->eos);
    *count = sink.count;
    if (sink.count > capacity)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "the text has %zu tokens, there is room for %zu", sink.count,
                             capacity);
    return SPECDEC_OK;
}

/* --- text out of tokens ------------------------------------------------------------------------------------------- */

/* The plain bytes that a token's text spells: the inverse of specdec__text_spell. Returns their number; out may be
   NULL. */
static size_t specdec__text_unspell(int model, specdec__bytes text, unsigned char *out)
{
    size_t at = 0, count = 0;

    while (at < text.size) {
        size_t size = 1, i;
        int byte = -1;

        if (!SPECDEC__VOCAB_IS_BPE(model)) {
            if (text.size - at >= 3 && memcmp(text.data + at, "\xe2\x96\x81", 3) == 0) {
                byte = ' ';
                size = 3;
            }
        } else {
            specdec__text_character c = specdec__text_character_at(text.data, text.size, at);
            byte = specdec__text_code_to_byte(c.code);
            size = (size_t)c.size;
        }
        for (i = 0; i < (byte < 0 ? size : 1); i++, count++)
            if (out)
                out[count] = byte < 0 ? text.data[at + i] : (unsigned char)byte;
        at += size;
    }
    return count;
}

/* The bytes of one token: spaces and bytes as plain text has them; nothing for unknown and control tokens unless
   show_special is set. *needed is their number, never above v->longest; out is untouched when that is more than size
   (BUFFER). Error: ARGUMENT for an id outside the vocabulary. */
static SPECDEC__UNUSED specdec_result specdec__token_bytes(const specdec__vocab *v, int32_t id, int show_special,
                                                           unsigned char *out, size_t size, size_t *needed,
                                                           specdec_error *error)
{
    specdec__bytes text;
    int type, byte;

    *needed = 0;
    if (id < 0 || (uint32_t)id >= v->count)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "token %d is not in the vocabulary of %u", (int)id,
                             v->count);
    text = specdec__vocab_text(v, (uint32_t)id);
    type = specdec__vocab_type(v, (uint32_t)id);
    byte = type == SPECDEC__TOKEN_BYTE ? specdec__vocab_byte_of(text) : -1;
    if (specdec__vocab_is_special(type))
        *needed = type == SPECDEC__TOKEN_USER_DEFINED || show_special ? text.size : 0;
    else
        *needed = byte >= 0 ? 1 : specdec__text_unspell(v->model, text, NULL);
    if (*needed > size)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "token %d has %zu bytes, there is room for %zu", (int)id,
                             *needed,
                             size);
    if (!*needed)
        return SPECDEC_OK;
    if (byte >= 0)
        out[0] = (unsigned char)byte;
    else if (specdec__vocab_is_special(type))
        memcpy(out, text.data, text.size);
    else
        specdec__text_unspell(v->model, text, out);
    return SPECDEC_OK;
}

/* Text coming out token by token, never ending inside a UTF-8 character. */
typedef struct specdec__text_stream {
    unsigned char held[3]; /* the beginning of a character that is not complete yet */
    int held_count;
    int drop_space;        /* the next plain token begins a text: SPM put a space before it */
    int show_special;
} specdec__text_stream;

/* previous: the token before the first one that will be pushed, -1 at the beginning of a text. */
static SPECDEC__UNUSED void specdec__text_stream_begin(specdec__text_stream *stream, const specdec__vocab *v,
                                                       int32_t previous, int show_special)
{
    memset(stream, 0, sizeof *stream);
    stream->show_special = show_special;
    stream->drop_space = previous < 0 || (uint32_t)previous >= v->count ||
                         specdec__vocab_is_special(specdec__vocab_type(v, (uint32_t)previous));
}

/* Bytes at the end of a text that could be the beginning of a character, 0..3. */
static size_t specdec__text_incomplete(const unsigned char *text, size_t length)
{
    size_t back;

    for (back = 1; back <= 3 && back <= length; back++)
        if (specdec__text_sequence(text + length - back, back) < 0)
            return back;
    return 0;
}

/* Adds a token. out gets *written bytes that are ready; v->longest + 3 bytes of room are always enough. Bytes that
   cannot become valid UTF-8 pass as they are. Errors as specdec__token_bytes; a failed call changes nothing. */
static SPECDEC__UNUSED specdec_result specdec__text_stream_push(specdec__text_stream *stream, const specdec__vocab *v,
                                                                int32_t id, unsigned char *out, size_t size,
                                                                size_t *written, specdec_error *error)
{
    size_t held = (size_t)stream->held_count, count, incomplete;
    specdec_result result;
    int type;

    *written = 0;
    if (size < held)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "%zu bytes are ready, there is room for %zu", held, size);
    result = specdec__token_bytes(v, id, stream->show_special, out + held, size - held, &count, error);
    if (result)
        return result;
    type = specdec__vocab_type(v, (uint32_t)id);
    if (stream->drop_space && !SPECDEC__VOCAB_IS_BPE(v->model) && v->add_space_prefix && count && out[held] == ' ' &&
        !specdec__vocab_is_special(type) && type != SPECDEC__TOKEN_BYTE)
        memmove(out + held, out + held + 1, --count);
    stream->drop_space = specdec__vocab_is_special(type);
    memcpy(out, stream->held, held);
    count += held;
    incomplete = specdec__text_incomplete(out, count);
    memcpy(stream->held, out + count - incomplete, incomplete);
    stream->held_count = (int)incomplete;
    *written = count - incomplete;
    return SPECDEC_OK;
}

/* Hands out what is held back, at most 3 bytes. Returns their number. */
static SPECDEC__UNUSED size_t specdec__text_stream_end(specdec__text_stream *stream, unsigned char out[3])
{
    size_t count = (size_t)stream->held_count;

    memcpy(out, stream->held, count);
    stream->held_count = 0;
    return count;
}

/* --- stop strings ------------------------------------------------------------------------------------------------- */

#define SPECDEC__STOP_MAX 8         /* stop strings */
#define SPECDEC__STOP_MAX_BYTES 256 /* bytes of one */

/* Looks for stop strings in bytes that come piece by piece; zero is the beginning. What is held back is always the
   beginning of a stop string, so its length and that string's number say all. */
typedef struct specdec__stop_scan {
    specdec__bytes strings[SPECDEC__STOP_MAX]; /* the caller's memory */
    int count;
    int held_of;  /* the string of which the beginning is held back */
    size_t held;  /* bytes held back */
    int stopped;  /* 1 + the number of the string that was found; 0: none was */
} specdec__stop_scan;

/* Adds a stop string, which must stay in memory. Error: ARGUMENT when it is empty, too long, or one too many. */
static SPECDEC__UNUSED specdec_result specdec__stop_add(specdec__stop_scan *scan, const char *string, size_t length,
                                                        specdec_error *error)
{
    if (scan->count >= SPECDEC__STOP_MAX || length < 1 || length > SPECDEC__STOP_MAX_BYTES)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "at most %d stop strings of 1 to %d bytes",
                             SPECDEC__STOP_MAX, SPECDEC__STOP_MAX_BYTES);
    scan->strings[scan->count].data = (const unsigned char *)string;
    scan->strings[scan->count++].size = length;
    return SPECDEC_OK;
}

/* Do the bytes held back, followed by next, end with the first length bytes of a string? */
static int specdec__stop_fits(const specdec__stop_scan *scan, specdec__bytes string, size_t length, unsigned char next)
{
    if (string.data[length - 1] != next)
        return 0;
    return length == 1 ||
           memcmp(string.data, scan->strings[scan->held_of].data + scan->held - (length - 1), length - 1) == 0;
}

/* Takes one byte. Returns how many bytes, of those held back and this one, are no part of a stop string. */
static size_t specdec__stop_byte(specdec__stop_scan *scan, unsigned char next)
{
    size_t longest = 0, all = scan->held + 1, length;
    int i, of = 0;

    for (i = 0; i < scan->count; i++) {
        specdec__bytes string = scan->strings[i];

        if (string.size > all || !specdec__stop_fits(scan, string, string.size, next) || string.size <= longest)
            continue;
        longest = string.size;
        scan->stopped = i + 1;
    }
    for (i = 0; i < scan->count && !scan->stopped; i++)
        for (length = all < scan->strings[i].size ? all : scan->strings[i].size - 1; length > longest; length--)
            if (specdec__stop_fits(scan, scan->strings[i], length, next)) {
                longest = length;
                of = i;
            }
    length = all - longest;
    if (longest && !scan->stopped) {
        scan->held_of = of;
        scan->held = longest;
    } else {
        scan->held = 0;
    }
    return length;
}

/* Takes bytes and hands out those that surely come before any stop string: *written of them, some of which may be from
   earlier calls; size must be at least length + SPECDEC__STOP_MAX_BYTES (BUFFER). After a stop string scan->stopped is
   set, everything before it has been handed out and nothing more is. out and bytes must not overlap. */
static SPECDEC__UNUSED specdec_result specdec__stop_push(specdec__stop_scan *scan, const unsigned char *bytes,
                                                         size_t length, unsigned char *out, size_t size,
                                                         size_t *written, specdec_error *error)
{
    size_t i;

    *written = 0;
    if (size < specdec__size_add(length, SPECDEC__STOP_MAX_BYTES))
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "%zu bytes need room for %zu", length,
                             specdec__size_add(length, SPECDEC__STOP_MAX_BYTES));
    for (i = 0; i < length && !scan->stopped; i++) {
        const unsigned char *held = scan->strings[scan->held_of].data;
        size_t held_count = scan->held, free_count = specdec__stop_byte(scan, bytes[i]);
        size_t from_held = free_count < held_count ? free_count : held_count;

        if (from_held)
            memcpy(out + *written, held, from_held);
        *written += from_held;
        if (free_count > held_count)
            out[(*written)++] = bytes[i];
    }
    return SPECDEC_OK;
}

/* Hands out what is held back when the text ends without a stop string. out: SPECDEC__STOP_MAX_BYTES of room. Returns
   the number of bytes. */
static SPECDEC__UNUSED size_t specdec__stop_end(specdec__stop_scan *scan, unsigned char *out)
{
    size_t count = scan->held;

    if (count)
        memcpy(out, scan->strings[scan->held_of].data, count);
    scan->held = 0;
    return count;
}

SPECDEC__FOR_SIZE
/* --- chat formats ------------------------------------------------------------------------------------------------- */

enum { SPECDEC__CHAT_ROLES = SPECDEC_ASSISTANT + 1 };

/* A chat format is recognised by what its template contains; the template itself is never run. The token that begins a
   text is left to specdec__tokenize; special tokens are written as text, so PARSE_SPECIAL belongs to it. */
typedef struct specdec__chat_format {
    const char *name;
    const char *has[2], *lacks;          /* in the template; NULL: does not matter */
    int trims;                           /* white space around messages is dropped */
    const char *opening;                 /* before system messages, and before user ones that follow no system one */
    const char *reopening;               /* before every opening but the first */
    const char *before[SPECDEC__CHAT_ROLES], *after[SPECDEC__CHAT_ROLES];
    const char *generate;                /* what makes the model answer */
} specdec__chat_format;

static const specdec__chat_format specdec__chat_formats[] = {
    {"zephyr", {"<|user|>", "eos_token"}, "<|end|>", 0, "", "",
     {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"}, {"</s>\n", "</s>\n", "</s>\n"}, "<|assistant|>\n"},
    {"phi4-mini", {"'|>' + message['content']", "<|end|>"}, NULL, 0, "", "",
     {"<|system|>", "<|user|>", "<|assistant|>"}, {"<|end|>", "<|end|>", "<|end|>"}, "<|assistant|>"},
    {"phi3", {"<|assistant|>", "<|end|>"}, NULL, 0, "", "",
     {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"}, {"<|end|>\n", "<|end|>\n", "<|end|>\n"}, "<|assistant|>\n"},
    {"phi4", {"<|im_start|>", "<|im_sep|>"}, NULL, 0, "", "",
     {"<|im_start|>system<|im_sep|>", "<|im_start|>user<|im_sep|>", "<|im_start|>assistant<|im_sep|>"},
     {"<|im_end|>", "<|im_end|>", "<|im_end|>"}, "<|im_start|>assistant<|im_sep|>"},
    {"chatml", {"<|im_start|>", NULL}, NULL, 0, "", "",
     {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},
     {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"}, "<|im_start|>assistant\n"},
    {"llama3", {"<|start_header_id|>", "<|end_header_id|>"}, NULL, 1, "", "",
     {"<|start_header_id|>system<|end_header_id|>\n\n", "<|start_header_id|>user<|end_header_id|>\n\n",
      "<|start_header_id|>assistant<|end_header_id|>\n\n"},
     {"<|eot_id|>", "<|eot_id|>", "<|eot_id|>"}, "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"granite", {"<|start_of_role|>", "<|end_of_role|>"}, NULL, 0, "", "",
     {"<|start_of_role|>system<|end_of_role|>", "<|start_of_role|>user<|end_of_role|>",
      "<|start_of_role|>assistant<|end_of_role|>"},
     {"<|end_of_text|>\n", "<|end_of_text|>\n", "<|end_of_text|>\n"}, "<|start_of_role|>assistant<|end_of_role|>"},
    {"llama2", {"[INST]", "<<SYS>>"}, NULL, 1, "[INST] ", "<s>",
     {"<<SYS>>\n", "", " "}, {"\n<</SYS>>\n\n", " [/INST]", " </s>"}, ""},
    {"mistral", {"[INST]", NULL}, NULL, 0, "[INST] ", "", {"", "", ""}, {"\n\n", " [/INST]", "</s>"}, ""},
    {"gemma", {"<start_of_turn>", NULL}, NULL, 1, "<start_of_turn>user\n", "",
     {"", "", "<start_of_turn>model\n"}, {"\n\n", "<end_of_turn>\n", "<end_of_turn>\n"}, "<start_of_turn>model\n"}};

/* Does a text contain a string? */
static int specdec__chat_contains(const char *text, size_t length, const char *what)
{
    size_t size = strlen(what), i;

    for (i = 0; i + size <= length; i++)
        if (memcmp(text + i, what, size) == 0)
            return 1;
    return 0;
}

/* The chat format of this name, or the one that a template (tokenizer.chat_template) is recognised as; NULL: none. */
static SPECDEC__UNUSED const specdec__chat_format *specdec__chat_find(const char *name_or_template, size_t length)
{
    size_t i;

    for (i = 0; SPECDEC__CHATS && i < SPECDEC__COUNT(specdec__chat_formats); i++)
        if (strlen(specdec__chat_formats[i].name) == length &&
            memcmp(specdec__chat_formats[i].name, name_or_template, length) == 0)
            return &specdec__chat_formats[i];
    for (i = 0; SPECDEC__CHATS && i < SPECDEC__COUNT(specdec__chat_formats); i++) {
        const specdec__chat_format *format = &specdec__chat_formats[i];

        if (specdec__chat_contains(name_or_template, length, format->has[0]) &&
            (!format->has[1] || specdec__chat_contains(name_or_template, length, format->has[1])) &&
            (!format->lacks || !specdec__chat_contains(name_or_template, length, format->lacks)))
            return format;
    }
    return NULL;
}

/* Appends bytes while there is room and counts them in any case. */
static void specdec__chat_append(char *out, size_t size, size_t *needed, const char *text, size_t length)
{
    if (length && *needed <= size && length <= size - *needed)
        memcpy(out + *needed, text, length);
    *needed = specdec__size_add(*needed, length);
}

static specdec__bytes specdec__chat_trim(const specdec_message *message, int trims)
{
    const char *text = message->text;
    size_t length = message->length == SPECDEC_WHOLE_STRING ? strlen(text) : message->length;
    specdec__bytes out;

    while (trims && length && memchr(" \t\r\n\v\f", text[length - 1], 6))
        length--;
    for (; trims && length && memchr(" \t\r\n\v\f", text[0], 6); length--)
        text++;
    out.data = (const unsigned char *)text;
    out.size = length;
    return out;
}

/* Writes a conversation as the model was trained to read it; add_generation_prompt ends it with what makes the model
   answer. *needed is its length; no terminating zero is written. Errors: ARGUMENT; BUFFER when that is above size. */
static SPECDEC__UNUSED specdec_result specdec__chat_render(const specdec__chat_format *format,
                                                           const specdec_message *messages, int count,
                                                           int add_generation_prompt, char *out, size_t size,
                                                           size_t *needed, specdec_error *error)
{
    int i, openings = 0, previous = SPECDEC_ASSISTANT;

    *needed = 0;
    for (i = 0; i < count; i++) {
        const int role = (int)messages[i].role;
        specdec__bytes text;

        if (role < 0 || role >= SPECDEC__CHAT_ROLES || (!messages[i].text && messages[i].length))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "message %d has an unknown role, or no text", i);
        text = specdec__chat_trim(&messages[i], format->trims);
        if (role != SPECDEC_ASSISTANT && previous != SPECDEC_SYSTEM) {
            if (openings++)
                specdec__chat_append(out, size, needed, format->reopening, strlen(format->reopening));
            specdec__chat_append(out, size, needed, format->opening, strlen(format->opening));
        }
        specdec__chat_append(out, size, needed, format->before[role], strlen(format->before[role]));
        specdec__chat_append(out, size, needed, (const char *)text.data, text.size);
        specdec__chat_append(out, size, needed, format->after[role], strlen(format->after[role]));
        previous = role;
    }
    if (add_generation_prompt)
        specdec__chat_append(out, size, needed, format->generate, strlen(format->generate));
    if (*needed > size)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "the conversation has %zu bytes, there is room for %zu",
                             *needed,
                             size);
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED

/* =====================================================================================================================
 * >>model (private): a GGUF's tensors, checked and bound by tables, and repacked into tiles of 16 rows.
 *     May call: >>base >>os >>pool >>quant >>op >>kernel >>gguf >>text
 * ================================================================================================================== */

SPECDEC__FOR_SIZE

#define SPECDEC__MAX_DIMENSION (1 << 20) /* of embedding, feed-forward and head counts times sizes */

/* A weight matrix: y (rows) = W (rows, columns) * x (columns). */
typedef struct specdec__matrix {
    const specdec__quant_type *type;
    int rows, columns;
    const unsigned char *file;  /* (row, block): as it lies in the file */
    const unsigned char *tiles; /* (row/16, block, ...) repacked; NULL: taken from the file tile by tile */
    size_t row_bytes;
} specdec__matrix;

enum { SPECDEC__Q, SPECDEC__K, SPECDEC__V, SPECDEC__O, SPECDEC__GATE, SPECDEC__UP, SPECDEC__DOWN, SPECDEC__MATRICES };
enum {
    SPECDEC__ATTENTION_NORM, SPECDEC__FFN_NORM, SPECDEC__Q_NORM, SPECDEC__K_NORM,
    SPECDEC__AFTER_ATTENTION, SPECDEC__AFTER_FFN, SPECDEC__READ_NORM,
    SPECDEC__Q_BIAS, SPECDEC__K_BIAS, SPECDEC__V_BIAS, SPECDEC__O_BIAS, SPECDEC__VECTORS
};
enum { SPECDEC__WHOLE, SPECDEC__WINDOW, SPECDEC__SPANS }; /* which keys a layer sees: all, or the last few */
enum { SPECDEC__ROPE, SPECDEC__ROPE_OTHER, SPECDEC__ROPE_LONG, SPECDEC__ROPES }; /* long: ROPE in long contexts */
enum {
    SPECDEC__EMBEDDING_SCALE, SPECDEC__QUERY_SCALE, SPECDEC__RESIDUAL_SCALE, SPECDEC__LOGIT_DIVISOR,
    SPECDEC__SCORE_CAP, SPECDEC__LOGIT_CAP, SPECDEC__FACTS /* a cap of 0: none */
};

enum { SPECDEC__HEAD_OUTPUT, SPECDEC__HEAD_INPUT }; /* places of the matrices, and of the vectors, of heads */
enum { SPECDEC__HEAD_NORM, SPECDEC__HEAD_BIAS };

typedef struct specdec__layer {
    specdec__matrix matrix[SPECDEC__MATRICES];
    const float *vector[SPECDEC__VECTORS]; /* padded with zeros to a multiple of 16; NULL when the model has none */
    specdec__matrix table;                 /* of a head: a row for each token, looked up */
    int span, place;                       /* which of the layers of its span it is */
    int rope;                              /* SPECDEC__ROPE or SPECDEC__ROPE_OTHER */
} specdec__layer;

/* What differs between architectures. Some have layers of a second kind, "the others": layer i is one of them if bit i
   % period of `others` is set. */
typedef struct specdec__architecture {
    const char *name;
    int halves;            /* RoPE pairs (i, i + dim/2); otherwise (2i, 2i + 1) */
    int activation;
    unsigned vectors;      /* bits of the optional vectors that must be there */
    unsigned fused;        /* bits of the rows of specdec__fused_table that hold its matrices */
    int period;
    unsigned others;
    int window;            /* keys that the others see if the file does not say; 0: it must; < 0: all in any case */
    float base;            /* of the others' RoPE if the file does not say; 0: as the rest, < 0: they do not rotate */
    int root_embedding;    /* embeddings are scaled by the root of their size */
    int wide_queries;      /* with so many layers, queries are scaled by the root of embedding / heads, not of a head */
    float score_cap, logit_cap; /* if the file does not say */
    int reads;             /* its one layer reads states of another model next to embeddings: it can only draft */
} specdec__architecture;

#define SPECDEC__BIT(i) (1u << (i))
#define SPECDEC__QKV_BIAS \
    (SPECDEC__BIT(SPECDEC__Q_BIAS) | SPECDEC__BIT(SPECDEC__K_BIAS) | SPECDEC__BIT(SPECDEC__V_BIAS))
#define SPECDEC__QK_NORM (SPECDEC__BIT(SPECDEC__Q_NORM) | SPECDEC__BIT(SPECDEC__K_NORM))
#define SPECDEC__AFTER (SPECDEC__BIT(SPECDEC__AFTER_ATTENTION) | SPECDEC__BIT(SPECDEC__AFTER_FFN))

static const specdec__architecture specdec__architectures[] = {
    {"llama", 0, SPECDEC__SILU, 0, 0, 1, 0, -1, 0, 0, 0, 0, 0, 0},
    {"qwen2", 1, SPECDEC__SILU, SPECDEC__QKV_BIAS, 0, 1, 0, -1, 0, 0, 0, 0, 0, 0},
    {"qwen3", 1, SPECDEC__SILU, SPECDEC__QK_NORM, 0, 1, 0, -1, 0, 0, 0, 0, 0, 0},
    {"gemma", 1, SPECDEC__GELU, 0, 0, 1, 0, -1, 0, 1, 0, 0, 0, 0},
    {"gemma2", 1, SPECDEC__GELU, SPECDEC__AFTER, 0, 2, 1, 4096, 0, 1, 46, 50, 30, 0},
    {"gemma3", 1, SPECDEC__GELU, SPECDEC__AFTER | SPECDEC__QK_NORM, 0, 6, 31, 0, 10000, 1, 62, 0, 0, 0},
    {"phi3", 1, SPECDEC__SILU, 0, 3, 1, 1, 1 << 30, 0, 0, 0, 0, 0, 0},
    {"smollm3", 0, SPECDEC__SILU, 0, 0, 4, 8, -1, -1, 0, 0, 0, 0, 0},
    {"granite", 0, SPECDEC__SILU, 0, 0, 1, 0, -1, 0, 0, 0, 0, 0, 0},
    /* EAGLE-3 (Li et al. 2025, arXiv 2503.01840) */
    {"eagle3", 0, SPECDEC__SILU, SPECDEC__BIT(SPECDEC__READ_NORM), 0, 1, 0, -1, 0, 0, 0, 0, 0, 1},
};

/* A file of heads, which guess the next tokens from a state of the target. What a head reads is the target's state, or,
   where heads follow each other, that of the head before it. Its state is activation(norm(input * that + row of the
   last token in table) + bias), plus what it has read if it adds; its output times that are the logits. In names of
   tensors # stands for "." and the number of the head, or for nothing where all heads share the tensor. */
typedef struct specdec__heads_kind {
    const char *name;
    int follow, adds, activation;
    const char *output, *input, *table, *norm, *bias; /* NULL: none */
} specdec__heads_kind;

static const specdec__heads_kind specdec__heads_kinds[] = {
    /* Wertheimer et al. 2024, arXiv 2404.19124 */
    {"mlp_speculator", 1, 0, SPECDEC__GELU_EXACT, "speculator.head#.weight", "speculator.proj#.weight",
     "speculator.emb#.weight", "speculator.ln#.weight", "speculator.ln#.bias"},
    /* Cai et al. 2024, arXiv 2401.10774 */
    {"medusa", 0, 1, SPECDEC__SILU, "medusa#.head.weight", "medusa#.block.0.weight", NULL, NULL,
     "medusa#.block.0.bias"},
};

#define SPECDEC__MAX_HEADS 8
#define SPECDEC__MAX_READS 8

/* What a model whose layer reads states needs beside that layer. The states of a target after so many layers, one
   behind the other, times `matrix` are what the layer reads. */
typedef struct specdec__reads {
    specdec__matrix matrix;         /* (embedding, count * width) */
    const float *norm;              /* (count * width) weights of a norm of the states before that; NULL: none */
    int layers[SPECDEC__MAX_READS]; /* (count) */
    int count, width;               /* width: of the target */
    int norm_first;                 /* the residual stream begins with the norm of what is read */
} specdec__reads;

typedef struct specdec_model {
    specdec__gguf gguf;
    specdec__bytes mapped; /* to be unmapped at the end; empty when the caller lent memory */
    specdec__vocab vocab;
    const specdec__architecture *architecture; /* NULL: heads */
    const specdec__heads_kind *speculator;     /* NULL: none. Else feed_forward is the width of the heads' states, */
    int guesses, tied;                         /* how many they are, and whether they share all but the first input */
    const float *input_norm;                   /* (embedding) weights of a norm of the target's state; NULL: none */
    const int32_t *ids;                        /* (id_count) tokens that rows of logits stand for; NULL: all of them */
    int id_count;
    int layers, embedding, feed_forward, heads, kv_heads, head_dim, rope_dim, context, vocab_size;
    int span_layers[SPECDEC__SPANS], window; /* keys that layers of SPECDEC__WINDOW see */
    float fact[SPECDEC__FACTS];
    float epsilon, rope_base, rope_scale[SPECDEC__ROPES] /* of cosine and sine: YaRN's attention factor */;
    double *rope_frequency[SPECDEC__ROPES]; /* (rope_dim / 2) radians a position; NULL: no layer has it */
    int rope_original;                      /* contexts above this are long */
    specdec__layer *layer;
    specdec__matrix token_embedding, output; /* without a type: the target's, where the architecture reads states */
    const float *output_norm;
    specdec__reads reads;
    specdec__bytes chat_template;
    size_t weight_bytes;      /* bytes of all matrices that a step reads */
    size_t tile_bytes;        /* the same, repacked: rows padded to 16 */
    uint64_t weight_products; /* multiply-adds a token */
} specdec__model;

/* Dimensions that a tensor's shape is checked against. */
enum {
    SPECDEC__DIM_E, SPECDEC__DIM_Q, SPECDEC__DIM_KV, SPECDEC__DIM_FF, SPECDEC__DIM_HEAD,
    SPECDEC__DIM_READ, /* what a layer's first matrices read: embedding, or embedding and states */
    SPECDEC__DIM_COUNT
};

static const struct { const char *suffix; unsigned char rows, columns; } specdec__matrix_table[SPECDEC__MATRICES] = {
    {"attn_q.weight", SPECDEC__DIM_Q, SPECDEC__DIM_READ}, {"attn_k.weight", SPECDEC__DIM_KV, SPECDEC__DIM_READ},
    {"attn_v.weight", SPECDEC__DIM_KV, SPECDEC__DIM_READ}, {"attn_output.weight", SPECDEC__DIM_E, SPECDEC__DIM_Q},
    {"ffn_gate.weight", SPECDEC__DIM_FF, SPECDEC__DIM_E}, {"ffn_up.weight", SPECDEC__DIM_FF, SPECDEC__DIM_E},
    {"ffn_down.weight", SPECDEC__DIM_E, SPECDEC__DIM_FF}};

/* Tensors that hold several matrices, one below the other. */
static const struct { const char *suffix; int first, count; } specdec__fused_table[] = {
    {"attn_qkv.weight", SPECDEC__Q, 3}, {"ffn_up.weight", SPECDEC__GATE, 2}};

static const char *const specdec__fact_table[SPECDEC__FACTS] = {".embedding_scale",        ".attention.scale",
                                                                ".residual_scale",         ".logit_scale",
                                                                ".attn_logit_softcapping", ".final_logit_softcapping"};

/* How much a vector is wanted: always, where it is there, or only by rows that name it, which then must have it. */
enum { SPECDEC__IF_THERE, SPECDEC__ALWAYS, SPECDEC__IF_NAMED };

static const struct { const char *suffix; unsigned char size, wanted; } specdec__vector_table[SPECDEC__VECTORS] = {
    {"attn_norm.weight", SPECDEC__DIM_E, SPECDEC__ALWAYS}, {"ffn_norm.weight", SPECDEC__DIM_E, SPECDEC__ALWAYS},
    {"attn_q_norm.weight", SPECDEC__DIM_HEAD, 0}, {"attn_k_norm.weight", SPECDEC__DIM_HEAD, 0},
    {"post_attention_norm.weight", SPECDEC__DIM_E, 0}, {"post_ffw_norm.weight", SPECDEC__DIM_E, 0},
    {"attn_norm_2.weight", SPECDEC__DIM_E, SPECDEC__IF_NAMED},
    {"attn_q.bias", SPECDEC__DIM_Q, 0}, {"attn_k.bias", SPECDEC__DIM_KV, 0}, {"attn_v.bias", SPECDEC__DIM_KV, 0},
    {"attn_output.bias", SPECDEC__DIM_E, 0}};

static const char *specdec__model_name(const specdec__model *m)
{
    return m->architecture ? m->architecture->name : m->speculator->name;
}

/* Whether a model can write a text on its own. */
static int specdec__model_writes(const specdec__model *m) { return m->architecture && !m->architecture->reads; }

/* "llama" + ".block_count" and the like, in a buffer of the caller's. */
static const char *specdec__model_key(const specdec__model *model, const char *suffix, char *buffer, size_t size)
{
    specdec__writer w = specdec__writer_to(buffer, size);

    specdec__write_string(&w, specdec__model_name(model));
    specdec__write_string(&w, suffix);
    return buffer;
}

/* Reads a model's keys, one after the other. After the first failure, which is in result, nothing more is read. */
typedef struct specdec__model_reader {
    const specdec__model *model;
    specdec_error *error;
    specdec_result result;
} specdec__model_reader;

static specdec__model_reader specdec__model_read(const specdec__model *model, specdec_error *error)
{
    specdec__model_reader reader;

    reader.model = model;
    reader.error = error;
    reader.result = SPECDEC_OK;
    return reader;
}

/* A required or (fallback >= 0) optional count. */
static int specdec__model_count(specdec__model_reader *r, const char *suffix, int low, int high, int fallback)
{
    char key[96];
    int64_t value = fallback;

    if (!r->result)
        r->result = specdec__gguf_get_integer(&r->model->gguf, specdec__model_key(r->model, suffix, key, sizeof key),
                                              low, high, &value, r->error);
    if (!r->result && value < 0)
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s is missing", key);
    return r->result ? low : (int)value;
}

static float specdec__model_float(specdec__model_reader *r, const char *suffix, float fallback)
{
    char key[96];

    if (!r->result)
        r->result = specdec__gguf_get_float(&r->model->gguf, specdec__model_key(r->model, suffix, key, sizeof key),
                                            &fallback, r->error);
    return fallback;
}

/* Reads the sizes of a model and checks them. */
static specdec_result specdec__model_shape(specdec__model *m, specdec_error *error)
{
    const int most = SPECDEC__MAX_DIMENSION;
    specdec__model_reader r = specdec__model_read(m, error);
    int value_dim;

    m->layers = specdec__model_count(&r, ".block_count", 1, 1 << 20, -1);
    m->embedding = specdec__model_count(&r, ".embedding_length", 1, most, -1);
    m->feed_forward = specdec__model_count(&r, ".feed_forward_length", 1, most, -1);
    m->context = specdec__model_count(&r, ".context_length", 1, 1 << 30, 2048);
    m->heads = specdec__model_count(&r, ".attention.head_count", 1, 4096, -1);
    m->kv_heads = specdec__model_count(&r, ".attention.head_count_kv", 1, 4096, m->heads);
    m->head_dim = specdec__model_count(&r, ".attention.key_length", 1, 4096, m->embedding / m->heads);
    value_dim = specdec__model_count(&r, ".attention.value_length", 1, 4096, m->head_dim);
    m->rope_dim = specdec__model_count(&r, ".rope.dimension_count", 1, 4096, m->head_dim);
    if (r.result)
        return r.result;
    if (m->heads % m->kv_heads)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%d heads cannot share %d kv heads", m->heads, m->kv_heads);
    if (m->head_dim < 2 || m->head_dim > 1024 || value_dim != m->head_dim)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "heads of %d keys and %d values (2..1024 and equal are read)", m->head_dim, value_dim);
    if (m->rope_dim > m->head_dim || m->rope_dim % 2)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "rope.dimension_count %d for heads of %d", m->rope_dim,
                             m->head_dim);
    if (m->heads * m->head_dim > most)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%d heads of %d are too many", m->heads, m->head_dim);
    if (m->layers > (int)m->gguf.tensor_count)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "block_count %d, but the file holds only %d tensors",
                             m->layers, (int)m->gguf.tensor_count);
    m->epsilon = specdec__model_float(&r, ".attention.layer_norm_rms_epsilon", 1e-5f);
    if (r.result)
        return r.result;
    if (!(m->epsilon >= 0 && m->epsilon < 1))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "layer_norm_rms_epsilon is out of range");
    return SPECDEC_OK;
}

/* Scales, caps and the window: the architecture's, unless the file says otherwise. A scale of 0 in the file counts as
   absent. */
static specdec_result specdec__model_facts(specdec__model *m, specdec_error *error)
{
    const specdec__architecture *a = m->architecture;
    const int queries = m->layers == a->wide_queries ? m->embedding / m->heads : m->head_dim;
    specdec__model_reader r = specdec__model_read(m, error);
    int i, window = a->window;

    for (i = 0; i < SPECDEC__FACTS; i++) {
        const float value = specdec__model_float(&r, specdec__fact_table[i], 0);

        if (r.result)
            return r.result;
        if (!(value >= 0 && value < 1e6f))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", specdec__fact_table[i] + 1);
        m->fact[i] = value > 0 ? value : 1;
        if (i == SPECDEC__SCORE_CAP || i == SPECDEC__LOGIT_CAP)
            m->fact[i] = value > 0 ? value : i == SPECDEC__SCORE_CAP ? a->score_cap : a->logit_cap;
        else if (i == SPECDEC__EMBEDDING_SCALE && !(value > 0) && a->root_embedding)
            m->fact[i] = (float)(m->embedding * specdec__inverse_root((double)m->embedding));
        else if (i == SPECDEC__QUERY_SCALE && !(value > 0))
            m->fact[i] = (float)specdec__inverse_root((double)queries);
    }
    if (window < 0)
        return SPECDEC_OK;
    window = specdec__model_count(&r, ".attention.sliding_window", 0, 1 << 30, window ? window : -1);
    m->window = window < 1 << 30 ? window : 0;
    return r.result;
}

/* Notes which keys a layer sees and how it rotates. */
static void specdec__model_kind(specdec__model *m, specdec__layer *layer, int index)
{
    const specdec__architecture *a = m->architecture;
    const int other = (int)(a->others >> index % a->period & 1);

    layer->span = other && m->window ? SPECDEC__WINDOW : SPECDEC__WHOLE;
    layer->place = m->span_layers[layer->span]++;
    layer->rope = other && a->base != 0 ? SPECDEC__ROPE_OTHER : SPECDEC__ROPE;
}

static specdec_result specdec__model_find(const specdec__model *m, const char *name, int required,
                                          specdec__gguf_tensor *out,
                                          int *found, specdec_error *error)
{
    *found = specdec__gguf_find_tensor(&m->gguf, name, out);
    if (*found == 2)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s occurs twice", name);
    if (!*found && required)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s is missing", name);
    return SPECDEC_OK;
}

/* Binds a matrix of exactly (rows, columns); *found tells whether an optional one is there. */
static specdec_result specdec__model_matrix(const specdec__model *m, const char *name, int rows, int columns,
                                            int required,
                                            specdec__matrix *out, int *found, specdec_error *error)
{
    specdec__gguf_tensor t;
    specdec_result result = specdec__model_find(m, name, required, &t, found, error);

    if (result || !*found)
        return result;
    out->type = specdec__quant_find(t.type);
    if (!out->type)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s is of type %u, which is not read", name,
                             t.type);
    if (specdec__quant_left_out(out->type))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "tensor %s is of type %s, which SPECDEC_TYPES leaves out of this build", name,
                             out->type->name);
    if (t.dimensions != 2 || t.shape[0] != (uint64_t)columns || t.shape[1] != (uint64_t)rows)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s is %llu x %llu, it should be %d x %d", name,
                             (unsigned long long)t.shape[0], (unsigned long long)t.shape[1], columns, rows);
    if (columns % 32)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s has rows of %d values, no multiple of 32",
                             name, columns);
    out->rows = rows;
    out->columns = columns;
    out->file = t.data;
    out->tiles = NULL;
    out->row_bytes = t.size / (size_t)rows;
    return SPECDEC_OK;
}

/* A vector of exactly size values, copied into the arena and padded to a multiple of 16; NULL when absent. */
static specdec_result specdec__model_vector(const specdec__model *m, const char *name, int size, int required,
                                            specdec__arena *arena,
                                            const float **out, specdec_error *error)
{
    specdec__gguf_tensor t;
    const specdec__quant_type *type;
    float *values;
    int found;
    specdec_result result = specdec__model_find(m, name, required, &t, &found, error);

    if (result || !found)
        return result;
    type = specdec__quant_find(t.type);
    if (!type || type->granule)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s should be F32, F16 or BF16", name);
    if (t.shape[0] != (uint64_t)size || t.shape[1] != 1 || t.shape[2] != 1 || t.shape[3] != 1)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s has %llu values, it should have %d", name,
                             (unsigned long long)t.shape[0], size);
    values = SPECDEC__TAKE(arena, float, specdec__round_up(size, 16));
    if (values)
        specdec__quant_to_float(type, t.data, (size_t)size, values);
    *out = values;
    return SPECDEC_OK;
}

static void specdec__model_tensor_name(char *name, size_t size, int layer, const char *suffix)
{
    specdec__writer w = specdec__writer_to(name, size);

    specdec__write_string(&w, "blk.");
    specdec__write_number(&w, (unsigned long long)layer, 0);
    specdec__write_string(&w, ".");
    specdec__write_string(&w, suffix);
}

SPECDEC__INLINE size_t specdec__matrix_tile_bytes(const specdec__matrix *matrix)
{
    return matrix->row_bytes * SPECDEC__QUANT_ROWS;
}
SPECDEC__INLINE int specdec__matrix_tiles(const specdec__matrix *matrix)
{
    return (matrix->rows + SPECDEC__QUANT_ROWS - 1) / SPECDEC__QUANT_ROWS;
}

static void specdec__model_count_weights(specdec__model *m, const specdec__matrix *matrix)
{
    m->weight_bytes += matrix->row_bytes * (size_t)matrix->rows;
    m->weight_products += (uint64_t)matrix->rows * (uint64_t)matrix->columns;
    m->tile_bytes += specdec__matrix_tile_bytes(matrix) * (size_t)specdec__matrix_tiles(matrix);
}

/* The tensor that holds matrix i of a layer: how many rows it has, and which of them is the matrix's first. */
static const char *specdec__model_holder(const specdec__model *m, int i, const int *size, int *rows, int *first)
{
    int f, j;

    *first = 0;
    *rows = size[specdec__matrix_table[i].rows];
    for (f = 0; f < (int)SPECDEC__COUNT(specdec__fused_table); f++) {
        const int from = specdec__fused_table[f].first, to = from + specdec__fused_table[f].count;

        if (!(m->architecture->fused & SPECDEC__BIT(f)) || i < from || i >= to)
            continue;
        *rows = 0;
        for (j = from; j < to; j++) {
            *first += j < i ? size[specdec__matrix_table[j].rows] : 0;
            *rows += size[specdec__matrix_table[j].rows];
        }
        return specdec__fused_table[f].suffix;
    }
    return specdec__matrix_table[i].suffix;
}

static specdec_result specdec__model_layer(specdec__model *m, int index, specdec__arena *arena, specdec_error *error)
{
    specdec__layer scratch, *layer = m->layer ? &m->layer[index] : &scratch;
    int size[SPECDEC__DIM_COUNT], i, found;
    specdec_result result;
    char name[64];

    size[SPECDEC__DIM_E] = m->embedding;
    size[SPECDEC__DIM_Q] = m->heads * m->head_dim;
    size[SPECDEC__DIM_KV] = m->kv_heads * m->head_dim;
    size[SPECDEC__DIM_FF] = m->feed_forward;
    size[SPECDEC__DIM_HEAD] = m->head_dim;
    size[SPECDEC__DIM_READ] = m->embedding * (1 + m->architecture->reads);
    memset(layer, 0, sizeof *layer);
    specdec__model_kind(m, layer, index);
    for (i = 0; i < SPECDEC__MATRICES; i++) {
        specdec__matrix *matrix = &layer->matrix[i];
        int rows, first;

        specdec__model_tensor_name(name, sizeof name, index, specdec__model_holder(m, i, size, &rows, &first));
        result = specdec__model_matrix(m, name, rows, size[specdec__matrix_table[i].columns], 1, matrix, &found, error);
        if (result)
            return result;
        matrix->rows = size[specdec__matrix_table[i].rows];
        matrix->file += (size_t)first * matrix->row_bytes;
        specdec__model_count_weights(m, matrix);
    }
    for (i = 0; i < SPECDEC__VECTORS; i++) {
        const int named = m->architecture->vectors >> i & 1, wanted = specdec__vector_table[i].wanted;
        const int required = named || wanted == SPECDEC__ALWAYS;

        if (!named && wanted == SPECDEC__IF_NAMED)
            continue;
        specdec__model_tensor_name(name, sizeof name, index, specdec__vector_table[i].suffix);
        result = specdec__model_vector(m, name, size[specdec__vector_table[i].size], required, arena,
                                       &layer->vector[i], error);
        if (result)
            return result;
    }
    return SPECDEC_OK;
}

/* How the file scales RoPE. */
typedef struct specdec__rope {
    int yarn;
    float divisor; /* of all frequencies */
    float factor, attention, fast, slow;
} specdec__rope;

/* YaRN (Peng et al. 2023, 2309.00071): the dimension at which a rotation makes `turns` turns over the original
   context. */
static double specdec__yarn_dimension(const specdec__model *m, double turns)
{
    return m->rope_dim * specdec__log_double(m->rope_original / (turns * 6.283185307179586)) /
           (2 * specdec__log_double(m->rope_base));
}

static void specdec__model_yarn(const specdec__model *m, const specdec__rope *rope, double *frequency)
{
    double low = specdec__yarn_dimension(m, rope->fast), high = specdec__yarn_dimension(m, rope->slow);
    int i, first, last;

    low = low > 0 ? low < m->rope_dim ? low : m->rope_dim : 0;
    high = high > 0 ? high < m->rope_dim ? high : m->rope_dim : 0;
    first = (int)low;
    last = specdec__min_int((int)high < high ? (int)high + 1 : (int)high, m->rope_dim - 1);
    for (i = 0; i < m->rope_dim / 2; i++) {
        double ramp = (i - first) / (last > first ? (double)(last - first) : 0.001);

        ramp = 1 - (ramp < 0 ? 0 : ramp > 1 ? 1 : ramp); /* share of the unscaled frequency */
        frequency[i] = specdec__product(frequency[i], ramp) + specdec__product(frequency[i] / (double)rope->factor,
                                                                               1 - ramp);
    }
}

/* How RoPE is scaled: not at all, linearly, by YaRN, or by factors alone. */
static specdec_result specdec__model_rope_scaling(specdec__model *m, specdec__rope *rope, specdec_error *error)
{
    specdec__model_reader r = specdec__model_read(m, error);
    char key[96];
    float linear;
    specdec__bytes kind;

    r.result = specdec__gguf_get_string(&m->gguf, specdec__model_key(m, ".rope.scaling.type", key, sizeof key), &kind,
                                        error);
    m->rope_base = specdec__model_float(&r, ".rope.freq_base", 10000);
    rope->factor = specdec__model_float(&r, ".rope.scaling.factor", 0);
    linear = specdec__model_float(&r, ".rope.scale_linear", 0);
    rope->attention = specdec__model_float(&r, ".rope.scaling.attn_factor", 1);
    rope->fast = specdec__model_float(&r, ".rope.scaling.yarn_beta_fast", 32);
    rope->slow = specdec__model_float(&r, ".rope.scaling.yarn_beta_slow", 1);
    m->rope_original = specdec__model_count(&r, ".rope.scaling.original_context_length", 1, 1 << 30, m->context);
    if (r.result)
        return r.result;
    rope->divisor = 1;
    rope->yarn = specdec__bytes_are(kind, "yarn");
    if (rope->factor <= 0)
        rope->factor = linear > 0 ? linear : 1;
    if (!kind.data || specdec__bytes_are(kind, "linear"))
        rope->divisor = rope->factor;
    else if (!rope->yarn && !specdec__bytes_are(kind, "none") && !specdec__bytes_are(kind, "longrope"))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "RoPE scaling \"%.*s\" (none, linear, yarn and longrope are known)",
                             (int)(kind.size < 32 ? kind.size : 32), (const char *)kind.data);
    if (!(rope->factor >= 1e-2f && rope->factor <= 1e6f) || !(rope->attention > 0 && rope->attention < 1e3f) ||
        !(rope->fast >= 1e-3f && rope->fast <= 1e6f) || !(rope->slow >= 1e-3f && rope->slow <= 1e6f) ||
        !(m->rope_base >= 1 && m->rope_base < 1e12f) || (rope->yarn && m->rope_base < 2))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "RoPE base or scaling values are out of range");
    return SPECDEC_OK;
}

/* Radians a position for every pair: base ^ (-2i / dim), divided by divisor and by the file's own factors (Llama 3,
   LongRoPE), if any. */
static specdec_result specdec__model_frequencies(specdec__model *m, int which, float base, float divisor,
                                                 const char *factors_name,
                                                 specdec__arena *arena, specdec_error *error)
{
    const float *factors = NULL;
    double *frequency;
    int i;
    specdec_result r = SPECDEC_OK;

    if (factors_name)
        r = specdec__model_vector(m, factors_name, m->rope_dim / 2, 0, arena, &factors, error);
    m->rope_scale[which] = 1;
    m->rope_frequency[which] = frequency = SPECDEC__TAKE(arena, double, m->rope_dim / 2);
    for (i = 0; !r && frequency && i < m->rope_dim / 2; i++) {
        if (factors && !(factors[i] >= 1e-2f && factors[i] <= 1e6f))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s has a factor out of range at %d", factors_name, i);
        frequency[i] = base > 0 ? specdec__exp_double(-2.0 * i / m->rope_dim * specdec__log_double(base)) : 0;
        frequency[i] /= (double)(factors ? factors[i] : 1) * (double)divisor;
    }
    return r;
}

static specdec_result specdec__model_rope(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    static const char *const factors[] = {"rope_freqs.weight", "rope_factors_short.weight"},
                             *const longer = "rope_factors_long.weight";
    float other = m->architecture->base;
    specdec__gguf_tensor unused;
    specdec__rope rope;
    specdec__model_reader reader = specdec__model_read(m, error);
    specdec_result r = specdec__model_rope_scaling(m, &rope, error);
    const int has_long = specdec__gguf_find_tensor(&m->gguf, longer, &unused);

    if (r ||
        (r = specdec__model_frequencies(m, SPECDEC__ROPE, m->rope_base, rope.divisor, factors[has_long > 0], arena,
                                        error)) != SPECDEC_OK ||
        (has_long && (r = specdec__model_frequencies(m, SPECDEC__ROPE_LONG, m->rope_base, rope.divisor, longer, arena,
                                                     error)) != SPECDEC_OK))
        return r;
    m->rope_scale[SPECDEC__ROPE] = m->rope_scale[SPECDEC__ROPE_LONG] = rope.attention;
    if (rope.yarn) {
        const double stretch = 1 + specdec__product(0.1, specdec__log_double(rope.factor));

        m->rope_scale[SPECDEC__ROPE] = (float)specdec__product(rope.attention, stretch);
        if (m->rope_frequency[SPECDEC__ROPE])
            specdec__model_yarn(m, &rope, m->rope_frequency[SPECDEC__ROPE]);
    }
    if (other > 0)
        other = specdec__model_float(&reader, ".rope.freq_base_swa", other);
    if (reader.result)
        return reader.result;
    if (!(other < 1e12f) || (other > 0 && other < 1))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "rope.freq_base_swa is out of range");
    return other != 0 ? specdec__model_frequencies(m, SPECDEC__ROPE_OTHER, other, 1, NULL, arena, error) : SPECDEC_OK;
}

/* Reads which tokens the rows of a short vocabulary stand for. */
static specdec_result specdec__model_ids(specdec__model *m, const char *name, specdec__arena *arena,
                                         specdec_error *error)
{
    const specdec__bytes file = m->gguf.file;
    specdec__gguf_tensor t;
    int32_t *ids;
    int found, width, i;
    specdec_result result = specdec__model_find(m, name, 0, &t, &found, error);

    if (result || !found)
        return result;
    width = t.type == SPECDEC__TYPE_I32 ? 4 : 8;
    if (t.type != SPECDEC__TYPE_I32 && t.type != SPECDEC__TYPE_I64)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s should be I32 or I64", name);
    if (!t.shape[0] || t.shape[0] > (uint64_t)m->vocab_size || t.shape[1] != 1 || t.shape[2] != 1 || t.shape[3] != 1)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s has %llu values, the vocabulary %d", name,
                             (unsigned long long)t.shape[0], m->vocab_size);
    m->id_count = (int)t.shape[0];
    if ((size_t)(file.data + file.size - t.data) / (size_t)width < (size_t)m->id_count)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s reaches beyond the end of the file", name);
    ids = SPECDEC__TAKE(arena, int32_t, m->id_count);
    for (i = 0; i < m->id_count; i++) {
        const unsigned char *at = t.data + (size_t)i * (size_t)width;
        const uint32_t id = specdec__load_u32(at);

        if (id >= (uint32_t)m->vocab_size || (width == 8 && specdec__load_u32(at + 4)))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s names a token at %d that there is not", name,
                                 i);
        if (ids)
            ids[i] = (int32_t)id;
    }
    m->ids = ids;
    return SPECDEC_OK;
}

/* The layers of the target whose states a model reads. */
static specdec_result specdec__model_read_layers(specdec__model *m, specdec_error *error)
{
    specdec__gguf_value list;
    char key[96];
    uint64_t i;

    specdec__model_key(m, ".target_layers", key, sizeof key);
    if (!specdec__gguf_find(&m->gguf, key, &list))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is missing", key);
    if (!list.is_array || (list.type != SPECDEC_GGUF_I32 && list.type != SPECDEC_GGUF_U32) || !list.count ||
        list.count > SPECDEC__MAX_READS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%s should be 1 to %d integers of 32 bits", key,
                             SPECDEC__MAX_READS);
    for (i = 0; i < list.count; i++) {
        const uint32_t layer = specdec__load_u32(list.items + 4 * i);

        if (layer > 1 << 20)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", key);
        m->reads.layers[m->reads.count++] = (int)layer;
    }
    return SPECDEC_OK;
}

/* Binds what a model has that reads states: for fc see specdec__reads. */
static specdec_result specdec__model_bind_reads(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    specdec__model_reader r = specdec__model_read(m, error);
    specdec__reads *reads = &m->reads;
    specdec_result result = specdec__model_read_layers(m, error);
    int found, normed;

    if (result)
        return result;
    reads->width = specdec__model_count(&r, ".target_hidden_size", 1, SPECDEC__MAX_DIMENSION, m->embedding);
    reads->norm_first = specdec__model_count(&r, ".norm_before_residual", 0, 1, 0);
    normed = specdec__model_count(&r, ".norm_before_fc", 0, 1, 0);
    if (!r.result && (m->layers != 1 || reads->width > SPECDEC__MAX_DIMENSION / reads->count))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "%d layers that read %d states of %d (one layer can be read)", m->layers, reads->count,
                             reads->width);
    if (r.result || (result = specdec__model_matrix(m, "fc.weight", m->embedding, reads->count * reads->width, 1,
                                                    &reads->matrix, &found, error)) != SPECDEC_OK)
        return r.result ? r.result : result;
    specdec__model_count_weights(m, &reads->matrix);
    return normed ? specdec__model_vector(m, "enc.output_norm.weight", reads->count * reads->width, 1, arena,
                                          &reads->norm, error)
                  : SPECDEC_OK;
}

static specdec_result specdec__model_bind(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    const int borrows = SPECDEC__HEADS && m->architecture->reads;
    int i, found;
    specdec_result r = specdec__model_rope(m, arena, error);

    if (r)
        return r;
    m->layer = SPECDEC__TAKE(arena, specdec__layer, m->layers);
    for (i = 0; i < m->layers; i++)
        if ((r = specdec__model_layer(m, i, arena, error)) != SPECDEC_OK)
            return r;
    m->vocab_size = (int)m->vocab.count;
    if ((borrows && (r = specdec__model_bind_reads(m, arena, error)) != SPECDEC_OK) ||
        (r = specdec__model_matrix(m, "token_embd.weight", m->vocab_size, m->embedding, !borrows, &m->token_embedding,
                                   &found, error)) != SPECDEC_OK ||
        (r = specdec__model_vector(m, "output_norm.weight", m->embedding, 1, arena, &m->output_norm, error)) !=
            SPECDEC_OK ||
        (r = specdec__model_ids(m, "d2t", arena, error)) != SPECDEC_OK ||
        (r = specdec__model_matrix(m, "output.weight", m->id_count ? m->id_count : m->vocab_size, m->embedding,
                                   m->id_count > 0, &m->output, &found, error)) != SPECDEC_OK)
        return r;
    if (!found && !borrows)
        m->output = m->token_embedding;
    specdec__model_count_weights(m, &m->output);
    return SPECDEC_OK;
}

/* --- heads -------------------------------------------------------------------------------------------------------- */

/* The name of a tensor of a head; head < 0: of one that they share. */
static const char *specdec__heads_name(const char *pattern, int head, char *name, size_t size)
{
    specdec__writer w = specdec__writer_to(name, size);
    char one[2] = {0, 0};

    for (; *pattern; pattern++)
        if (*pattern != '#') {
            one[0] = *pattern;
            specdec__write_string(&w, one);
        } else if (head >= 0) {
            specdec__write_string(&w, ".");
            specdec__write_number(&w, (unsigned long long)head, 0);
        }
    return name;
}

/* Binds what head i does not share with one before it. */
static specdec_result specdec__heads_layer(specdec__model *m, int i, specdec__arena *arena, specdec_error *error)
{
    const specdec__heads_kind *k = m->speculator;
    const int own = m->tied ? -1 : i, rows = m->id_count ? m->id_count : m->vocab_size, inner = m->feed_forward;
    specdec__layer scratch, *layer = m->layer ? &m->layer[i] : &scratch;
    specdec_result r;
    char name[64];
    int found;

    memset(layer, 0, sizeof *layer);
    r = specdec__model_matrix(m, specdec__heads_name(k->input, i, name, sizeof name), inner,
                              i && k->follow ? inner : m->embedding, 1, &layer->matrix[SPECDEC__HEAD_INPUT], &found,
                              error);
    if (r)
        return r;
    specdec__model_count_weights(m, &layer->matrix[SPECDEC__HEAD_INPUT]);
    if (m->tied && i)
        return SPECDEC_OK;
    r = specdec__model_matrix(m, specdec__heads_name(k->output, own, name, sizeof name), rows, inner, 1,
                              &layer->matrix[SPECDEC__HEAD_OUTPUT], &found, error);
    if (!r)
        specdec__model_count_weights(m, &layer->matrix[SPECDEC__HEAD_OUTPUT]);
    if (!r && k->table)
        r = specdec__model_matrix(m, specdec__heads_name(k->table, own, name, sizeof name), m->vocab_size, inner, 1,
                                  &layer->table, &found, error);
    if (!r && k->norm)
        r = specdec__model_vector(m, specdec__heads_name(k->norm, own, name, sizeof name), inner, 1, arena,
                                  &layer->vector[SPECDEC__HEAD_NORM], error);
    return r ? r : specdec__model_vector(m, specdec__heads_name(k->bias, own, name, sizeof name), inner, 1, arena,
                                         &layer->vector[SPECDEC__HEAD_BIAS], error);
}

static specdec_result specdec__heads_bind(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    specdec__model_reader r = specdec__model_read(m, error);
    specdec_result result;
    float *norm;
    int i, scaled;

    m->epsilon = 1e-6f;
    m->vocab_size = specdec__model_count(&r, ".vocab_size", 1, 1 << 24, -1);
    m->embedding = specdec__model_count(&r, ".embedding_length", 1, SPECDEC__MAX_DIMENSION, -1);
    m->feed_forward = specdec__model_count(&r, ".inner_length", 1, SPECDEC__MAX_DIMENSION,
                                           m->speculator->adds ? m->embedding : -1);
    m->guesses = specdec__model_count(&r, ".n_predict", 1, SPECDEC__MAX_HEADS, -1);
    m->tied = specdec__model_count(&r, ".tie_weights", 0, 1, 0);
    scaled = specdec__model_count(&r, ".scale_input", 0, 1, 0);
    if (m->speculator->adds)
        specdec__model_count(&r, ".block_count", 1, 1, 1);
    if (!r.result && m->speculator->adds && (m->tied || m->feed_forward != m->embedding))
        r.result = specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "heads of another width than the target's states");
    result = r.result ? r.result : specdec__model_ids(m, "speculator.tokens", arena, error);
    if (result)
        return result;
    norm = scaled ? SPECDEC__TAKE(arena, float, m->embedding) : NULL;
    for (i = 0; norm && i < m->embedding; i++)
        norm[i] = 0.707106769f;
    m->input_norm = norm;
    m->layers = m->tied ? specdec__min_int(m->guesses, 2) : m->guesses;
    m->layer = SPECDEC__TAKE(arena, specdec__layer, m->layers);
    for (i = 0; i < m->layers; i++)
        if ((result = specdec__heads_layer(m, i, arena, error)) != SPECDEC_OK)
            return result;
    return SPECDEC_OK;
}

/* Every matrix of a step, by number: layers * SPECDEC__MATRICES of them, the output head, and that of what is read. */
static specdec__matrix *specdec__model_matrix_at(specdec__model *m, int i)
{
    const int in_layers = m->layers * SPECDEC__MATRICES;

    return i < in_layers    ? &m->layer[i / SPECDEC__MATRICES].matrix[i % SPECDEC__MATRICES]
           : i == in_layers ? &m->output
                            : &m->reads.matrix;
}

typedef struct specdec__repack {
    specdec__model *model;
    specdec__pool *pool;
    unsigned char *tiles;
    const specdec_hooks *hooks;
} specdec__repack;

static void specdec__model_repack_worker(void *argument, int thread)
{
    specdec__repack *job = (specdec__repack *)argument;
    specdec__model *m = job->model;
    unsigned char *out = job->tiles;
    int count = m->layers * SPECDEC__MATRICES + 1 + (m->reads.count > 0), i;

    for (i = 0; i < count; i++) {
        specdec__matrix *matrix = specdec__model_matrix_at(m, i);
        size_t tile_bytes = specdec__matrix_tile_bytes(matrix);
        int tiles = specdec__matrix_tiles(matrix), from, end = 0, t;

        while ((from = specdec__pool_claim(job->pool, tiles, 8, &end)) < tiles)
            for (t = from; t < end; t++)
                specdec__quant_interleave(matrix->type, matrix->file + (size_t)t * tile_bytes, matrix->row_bytes,
                                          specdec__min_int(SPECDEC__QUANT_ROWS, matrix->rows - t * SPECDEC__QUANT_ROWS),
                                          (size_t)matrix->columns / matrix->type->block, out + (size_t)t * tile_bytes);
        if (specdec__pool_barrier(job->pool))
            return;
        if (thread == 0) {
            matrix->tiles = out;
            if (job->hooks->progress && job->hooks->progress(job->hooks->user_data, "repack", i + 1, count))
                SPECDEC__STORE(job->pool->cancel, 1);
        }
        out += tile_bytes * (size_t)tiles;
    }
}

/* Rewrites all matrices of a step into tiles: as many bytes as in the file, plus padding to 16 rows. */
static specdec_result specdec__model_repack(specdec__model *m, specdec__arena *arena, specdec__pool *pool,
                                            const specdec_hooks *hooks,
                                            specdec_error *error)
{
    specdec__repack job;

    job.tiles = (unsigned char *)specdec__arena_reserve(arena, m->tile_bytes, 1, SPECDEC__CACHE_LINE);
    if (!job.tiles)
        return SPECDEC_OK;
    job.model = m;
    job.pool = pool;
    job.hooks = hooks;
    if (specdec__pool_run(pool, pool->threads, specdec__model_repack_worker, &job))
        return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled while repacking");
    return SPECDEC_OK;
}

/* A file, mapped or copied into the arena. While the arena only counts, it is mapped in both cases. */
static specdec_result specdec__model_open(specdec__model *m, const specdec_source *source, specdec__arena *arena,
                                          specdec__bytes *file,
                                          specdec_error *error)
{
    specdec_result result = specdec__os_map(&m->mapped, source->path, error);
    unsigned char *room = NULL;

    *file = m->mapped;
    if (!result && source->copy)
        room = (unsigned char *)specdec__arena_reserve(arena, file->size, 1, SPECDEC__CACHE_LINE);
    if (!room)
        return result;
    file->data = room;
    specdec__os_unmap(&m->mapped);
    return specdec__os_read(room, file->size, source->path, error);
}

/* Opens and binds a model from a path or from memory. While the arena counts, *model is complete but for what lies in
   the arena, and the mapping stays the caller's to release with specdec__model_deinit. vocabulary_only: without
   weights. */
static specdec_result specdec__model_init(specdec__model *m, const specdec_source *source, int vocabulary_only,
                                          specdec__arena *arena, specdec_error *error)
{
    specdec_result result;
    specdec__bytes file, name;
    size_t i;

    memset(m, 0, sizeof *m);
    file.data = (const unsigned char *)source->data;
    file.size = source->size;
    if (!file.data) {
        if (!source->path)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a model needs a path or data");
        result = specdec__model_open(m, source, arena, &file, error);
        if (result)
            return result;
    }
    if ((result = specdec__gguf_open(&m->gguf, file, error)) != SPECDEC_OK ||
        (result = specdec__gguf_get_string(&m->gguf, "general.architecture", &name, error)) != SPECDEC_OK)
        return result;
    for (i = 0; i < SPECDEC__COUNT(specdec__architectures); i++)
        if (specdec__bytes_are(name, specdec__architectures[i].name))
            m->architecture = &specdec__architectures[i];
    for (i = 0; i < SPECDEC__COUNT(specdec__heads_kinds); i++)
        if (specdec__bytes_are(name, specdec__heads_kinds[i].name))
            m->speculator = &specdec__heads_kinds[i];
    if (!SPECDEC__HEADS && (m->speculator || (m->architecture && m->architecture->reads)))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "heads are left out of this build by SPECDEC_NO_HEADS");
    if (SPECDEC__HEADS && m->speculator && !vocabulary_only)
        return specdec__heads_bind(m, arena, error);
    if (!m->architecture)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "architecture \"%.*s\" is not known",
                             (int)(name.size < 64 ? name.size : 64), name.data ? (const char *)name.data : "");
    if ((result = specdec__model_shape(m, error)) != SPECDEC_OK ||
        (result = specdec__model_facts(m, error)) != SPECDEC_OK ||
        (result = specdec__vocab_init(&m->vocab, &m->gguf, arena, error)) != SPECDEC_OK ||
        (result = specdec__gguf_get_string(&m->gguf, "tokenizer.chat_template", &m->chat_template, error)) !=
            SPECDEC_OK)
        return result;
    return vocabulary_only ? SPECDEC_OK : specdec__model_bind(m, arena, error);
}

static void specdec__model_deinit(specdec__model *m)
{
    specdec__os_unmap(&m->mapped);
}

SPECDEC__FOR_SPEED

/* =====================================================================================================================
 * >>kv (private): pages of 64 slots, and views: ordered lists of segments. May call: >>base >>quant >>kernel >>model
 *
 * A page holds 64 slots of every kv head of the layers of one span, those that see all keys or those that see a window:
 * so a view can return the pages that no window reaches any more. A page may be part of several views: it counts them.
 * Keys are transposed, (dim,
                         64), so that the lanes of a score are keys and its sum runs over dimensions in order, wherever
 * a key lies; values are rows, (64, dim). Keys are stored rotated. 8-bit keys are tiles of a Q8_0 matrix, 16 keys each,
 * which the kernels for weights multiply by quantised queries.
 * ================================================================================================================== */

/* How keys and values are stored. Elements are f32, f16, or 8-bit codes with one f16 scale for 32 dimensions. */
typedef struct specdec__kv_type {
    const char *name;
    int multiple;                    /* dim is padded to a multiple of this */
    int bytes_per_32;                /* bytes of 32 elements, scales included */
    int tiles;                       /* 1: keys are Q8_0 tiles, 0: floats of some size */
} specdec__kv_type;

enum { SPECDEC__KV_F16, SPECDEC__KV_F32, SPECDEC__KV_Q8_0, SPECDEC__KV_TYPES };
static const specdec__kv_type specdec__kv_types[SPECDEC__KV_TYPES] = {
    {"f16", 16, 64, 0}, {"f32", 16, 128, 0}, {"q8_0", 32, 34, 1}};

typedef struct specdec__segment {
    int page, from, length; /* slots [from, from + length) of a page */
    int start;              /* logical position of the first */
} specdec__segment;

typedef struct specdec__segments {
    specdec__segment *at; /* capacity of them; those past count name spare pages */
    int count, spare;
    int room;              /* slots behind the last one, in its page, that are the view's to reserve */
} specdec__segments;

/* What a query attends to, in logical order. Reserved slots follow the last segment: first the rest of its page if
   that is the view's own, then spare pages. */
typedef struct specdec__view {
    specdec__segments span[SPECDEC__SPANS];
    int capacity; /* segments, in each span */
    int length;   /* committed keys */
    int position; /* what RoPE turns the next one by: length, if no keys were left out */
} specdec__view;

/* Pages of the layers of a span. */
typedef struct specdec__pages {
    int layers, window; /* window: keys that a query sees; 0: all */
    int count, free_count;
    size_t bytes;       /* of a page */
    unsigned char *memory;
    int *free;          /* (free_count) pages that no view has */
    int *views;         /* (count) how many views have a part in it */
    int touched;        /* pages that were ever handed out: the first ones, as fresh ones go in order */
} specdec__pages;

typedef struct specdec__kv {
    int type, kv_heads, dim /* padded head size */;
    size_t half_bytes; /* keys, or values, of one page, layer and head */
    specdec__pages span[SPECDEC__SPANS];
} specdec__kv;

#define SPECDEC__BEHIND 256 /* keys behind a window that stay, so that a text can be rewound a little */

static int specdec__kv_find_type(const char *name)
{
    int i;

    for (i = 0; i < SPECDEC__KV_TYPES; i++)
        if (strcmp(specdec__kv_types[i].name, name) == 0)
            return i;
    return -1;
}

static void specdec__pages_init(specdec__pages *pages, int count, specdec__arena *arena)
{
    int i;

    pages->count = count;
    pages->memory = (unsigned char *)specdec__arena_reserve(arena, (size_t)count, pages->bytes, SPECDEC__CACHE_LINE);
    pages->free = SPECDEC__TAKE(arena, int, count);
    pages->views = SPECDEC__TAKE(arena, int, count);
    for (i = 0; pages->free && i < count; i++)
        pages->free[pages->free_count++] = count - 1 - i;
}

/* How many views of how many keys there is to be room for. */
typedef struct specdec__room {
    int views;
    int length; /* keys of a view, at most */
    int keys;   /* of all views, at most */
    int most;   /* nodes of a step */
} specdec__room;

/* Pages that a span needs: for its keys, for the nodes of a step behind those that one committed, and, if views share
   pages, for the last page of each, which is its own. */
static int specdec__kv_pages(const specdec__pages *pages, const specdec__room *room)
{
    int keys = room->views > 1 ? room->keys : room->length, own = room->views > 1 ? room->views : 0;

    keys += 2 * room->most;
    if (pages->window && pages->window < room->length + 2 * room->most) { /* first and last page may be partly used */
        own = 0;
        keys = specdec__min_int(room->length + 2 * room->most,
                                pages->window + SPECDEC__BEHIND + room->most + 2 * SPECDEC__KEYS);
        keys = specdec__min_int(keys, (1 << 30) / room->views) * room->views;
    }
    return (keys + SPECDEC__KEYS - 1) / SPECDEC__KEYS + own;
}

static void specdec__kv_init(specdec__kv *kv, int type, const specdec__model *model, const specdec__room *room,
                             specdec__arena *arena)
{
    int span;

    memset(kv, 0, sizeof *kv);
    kv->type = type;
    kv->kv_heads = model->kv_heads;
    kv->dim = specdec__round_up(model->head_dim, specdec__kv_types[type].multiple);
    kv->half_bytes = (size_t)kv->dim * SPECDEC__KEYS / 32 * (size_t)specdec__kv_types[type].bytes_per_32;
    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__pages *pages = &kv->span[span];

        pages->layers = model->span_layers[span];
        pages->window = span == SPECDEC__WINDOW ? model->window : 0;
        pages->bytes = specdec__size_multiply(2 * kv->half_bytes, (size_t)pages->layers * (size_t)kv->kv_heads);
        if (pages->layers)
            specdec__pages_init(pages, specdec__kv_pages(pages, room), arena);
    }
}

/* All its pages. */
static size_t specdec__kv_bytes(const specdec__kv *kv)
{
    size_t bytes = 0;
    int span;

    for (span = 0; span < SPECDEC__SPANS; span++)
        bytes += (size_t)kv->span[span].count * kv->span[span].bytes;
    return bytes;
}

SPECDEC__INLINE unsigned char *specdec__kv_keys(const specdec__kv *kv, int span, int page, int layer, int head)
{
    const specdec__pages *pages = &kv->span[span];

    return pages->memory + (size_t)page * pages->bytes +
           ((size_t)layer * (size_t)kv->kv_heads + (size_t)head) * 2 * kv->half_bytes;
}

/* One view less has a part in a page. */
static void specdec__pages_drop(specdec__pages *pages, int page)
{
    if (--pages->views[page] == 0)
        pages->free[pages->free_count++] = page;
}

static void specdec__view_init(specdec__view *view, int capacity, specdec__arena *arena)
{
    int span;

    memset(view, 0, sizeof *view);
    view->capacity = capacity;
    for (span = 0; span < SPECDEC__SPANS; span++)
        view->span[span].at = SPECDEC__TAKE(arena, specdec__segment, capacity);
}

/* --- reserving: logical position p lies in slot p % 64 of a page -------------------------------------------------- */

/* Works out which slots can be reserved in the pages of the last segments. Only when a view itself has changed: what
   other views do to these pages must not move the nodes that are reserved. */
static void specdec__view_settle(specdec__view *view, const specdec__kv *kv)
{
    const int used = view->length % SPECDEC__KEYS;
    int span;

    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__segments *s = &view->span[span];
        const specdec__segment *last = s->count ? &s->at[s->count - 1] : NULL;

        s->room = 0;
        if (last && used && last->from + last->length == used && kv->span[span].views[last->page] == 1)
            s->room = SPECDEC__KEYS - used;
    }
}

/* The slot (page * 64 + place) of reserved node i. */
static int specdec__view_reserved_slot(const specdec__view *view, int span, int i)
{
    const specdec__segments *s = &view->span[span];
    const int used = view->length % SPECDEC__KEYS;
    const int page = i < s->room ? s->at[s->count - 1].page
                                 : s->at[s->count + (s->room ? i - s->room : i + used) / SPECDEC__KEYS].page;

    return page * SPECDEC__KEYS + (used + i) % SPECDEC__KEYS;
}

/* Hands out a page to one view; -1: none is left. */
static int specdec__pages_take(specdec__pages *pages)
{
    int page;

    if (!pages->free_count)
        return -1;
    page = pages->free[--pages->free_count];
    pages->views[page] = 1;
    if (page == pages->touched) /* memory is cleared, and so used, when it is first needed */
        memset(pages->memory + (size_t)pages->touched++ * pages->bytes, 0, pages->bytes);
    return page;
}

/* A view that wants to go on within its last page, of which other views have a part, gets a copy of its own. Returns 0
   when pages run out. */
static int specdec__view_own(specdec__view *view, specdec__kv *kv, int span)
{
    specdec__pages *pages = &kv->span[span];
    specdec__segments *s = &view->span[span];
    specdec__segment *last = s->count ? &s->at[s->count - 1] : NULL;
    const int used = view->length % SPECDEC__KEYS;
    int page;

    if (!pages->layers || !last || !used || s->room || s->spare || last->from + last->length != used)
        return 1;
    if (pages->views[last->page] > 1) {
        page = specdec__pages_take(pages);
        if (page < 0)
            return 0;
        memcpy(pages->memory + (size_t)page * pages->bytes, pages->memory + (size_t)last->page * pages->bytes,
               pages->bytes);
        specdec__pages_drop(pages, last->page);
        last->page = page;
    }
    s->room = SPECDEC__KEYS - used;
    return 1;
}

/* Makes room for n nodes behind the committed tokens. Returns 0 when pages run out. */
static int specdec__view_reserve(specdec__view *view, specdec__kv *kv, int n)
{
    int span;

    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__pages *pages = &kv->span[span];
        specdec__segments *s = &view->span[span];
        int slots;

        if (!specdec__view_own(view, kv, span))
            return 0;
        slots = s->room ? n - s->room : n + view->length % SPECDEC__KEYS;
        while (pages->layers && s->spare * SPECDEC__KEYS < slots) {
            specdec__segment *spare = &s->at[s->count + s->spare];

            if (!pages->free_count || s->count + s->spare >= view->capacity)
                return 0;
            memset(spare, 0, sizeof *spare);
            spare->page = specdec__pages_take(pages);
            s->spare++;
        }
    }
    return 1;
}

/* Where the block of 32 dimensions from d on of an 8-bit key begins: 16 scales, then codes (8, 16 keys, 4). */
SPECDEC__INLINE size_t specdec__kv_tile_block(const specdec__kv *kv, int slot, int d)
{
    return (size_t)(slot % SPECDEC__KEYS / SPECDEC__ROWS * (kv->dim / 32) + d / 32) * 34 * SPECDEC__ROWS;
}

static void specdec__kv_copy_tile_key(const specdec__kv *kv, const unsigned char *from, int a, unsigned char *to, int b)
{
    int d;

    for (d = 0; d < kv->dim; d += 32) {
        const unsigned char *old = from + specdec__kv_tile_block(kv, a, d);
        unsigned char *own = to + specdec__kv_tile_block(kv, b, d);

        memcpy(own + b % SPECDEC__ROWS * 2, old + a % SPECDEC__ROWS * 2, 2);
        specdec__quant_move_units(4, 8, 0, old + 32 + a % SPECDEC__ROWS * 4, 4 * SPECDEC__ROWS,
                                  own + 32 + b % SPECDEC__ROWS * 4, 4 * SPECDEC__ROWS);
    }
}

/* Copies one slot to another, all layers and heads of a span: a key and a value. */
static void specdec__kv_copy_slot(specdec__kv *kv, int span, int from, int to)
{
    const int dim = kv->dim, a = from % SPECDEC__KEYS, b = to % SPECDEC__KEYS,
              tiles = specdec__kv_types[kv->type].tiles;
    const size_t size = kv->type == SPECDEC__KV_F32 ? 4 : kv->type == SPECDEC__KV_F16 ? 2 : 1;
    int layer, head, d;

    for (layer = 0; layer < kv->span[span].layers; layer++)
        for (head = 0; head < kv->kv_heads; head++) {
            const unsigned char *k = specdec__kv_keys(kv, span, from / SPECDEC__KEYS, layer,
                                                      head), *v = k + kv->half_bytes;
            unsigned char *k_to = specdec__kv_keys(kv, span, to / SPECDEC__KEYS, layer,
                                                   head), *v_to = k_to + kv->half_bytes;

            memcpy(v_to + (size_t)b * (size_t)dim * size, v + (size_t)a * (size_t)dim * size, (size_t)dim * size);
            if (tiles) {
                const size_t codes = (size_t)dim * SPECDEC__KEYS, scales = (size_t)dim / 32;

                specdec__kv_copy_tile_key(kv, k, a, k_to, b);
                memcpy(v_to + codes + (size_t)b * scales * 2, v + codes + (size_t)a * scales * 2, scales * 2);
            } else {
                for (d = 0; d < dim; d++)
                    memcpy(k_to + ((size_t)d * SPECDEC__KEYS + (size_t)b) * size,
                           k + ((size_t)d * SPECDEC__KEYS + (size_t)a) * size, size);
            }
        }
}

/* Returns the pages that no later query's window reaches, but for a few. */
static void specdec__view_release(specdec__view *view, specdec__pages *pages, specdec__segments *s)
{
    const int first = pages->window ? view->length + 1 - pages->window - SPECDEC__BEHIND : 0;
    int gone = 0;

    while (gone < s->count && s->at[gone].start + s->at[gone].length <= first)
        specdec__pages_drop(pages, s->at[gone++].page);
    if (gone)
        memmove(s->at, s->at + gone, (size_t)(s->count + s->spare - gone) * sizeof *s->at);
    s->count -= gone;
}

/* Returns the spare pages. */
static void specdec__view_unreserve(specdec__view *view, specdec__kv *kv)
{
    int span;

    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__segments *s = &view->span[span];

        while (s->spare)
            specdec__pages_drop(&kv->span[span], s->at[s->count + --s->spare].page);
    }
}

/* Keeps the reserved nodes path[0] < path[1] < ... as the next committed tokens and forgets the others. */
static void specdec__view_commit(specdec__view *view, specdec__kv *kv, const int *path, int count)
{
    int span, i, left, room, at;

    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__segments *s = &view->span[span];

        for (i = 0; i < count && kv->span[span].layers; i++)
            if (path[i] != i)
                specdec__kv_copy_slot(kv, span, specdec__view_reserved_slot(view, span, path[i]),
                                      specdec__view_reserved_slot(view, span, i));
        room = specdec__min_int(s->room, count);
        if (room)
            s->at[s->count - 1].length += room;
        for (left = count - room; left > 0 && kv->span[span].layers; left -= at) { /* the first spare page: a segment */
            specdec__segment *last = &s->at[s->count++];

            s->spare--;
            last->start = view->length + count - left;
            last->from = last->start % SPECDEC__KEYS;
            last->length = at = specdec__min_int(left, SPECDEC__KEYS - last->from);
        }
    }
    view->length += count;
    view->position += count;
    for (span = 0; span < SPECDEC__SPANS; span++)
        specdec__view_release(view, &kv->span[span], &view->span[span]);
    specdec__view_settle(view, kv);
}

/* Whether all keys that what follows `end` sees, from `from` on, are still there. */
static int specdec__view_holds(const specdec__view *view, const specdec__kv *kv, int span, int from, int end)
{
    const specdec__segments *s = &view->span[span];
    const int window = kv->span[span].window;
    int at = window ? specdec__max_int(end + 1 - window, from) : from, i;

    for (i = 0; i < s->count && at < end; i++)
        if (s->at[i].start <= at && s->at[i].start + s->at[i].length > at)
            at = s->at[i].start + s->at[i].length;
    return at >= end || !kv->span[span].layers;
}

/* Forgets all tokens from logical position length on, and returns pages that nothing uses. Forgets all of them where a
   window would reach pages that were returned. */
static void specdec__view_truncate(specdec__view *view, specdec__kv *kv, int length)
{
    int span;

    specdec__view_unreserve(view, kv);
    for (span = 0; span < SPECDEC__SPANS; span++)
        if (length < view->length && !specdec__view_holds(view, kv, span, 0, length))
            length = 0;
    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__segments *s = &view->span[span];

        while (s->count && s->at[s->count - 1].start >= length)
            specdec__pages_drop(&kv->span[span], s->at[--s->count].page);
        if (s->count)
            s->at[s->count - 1].length = specdec__min_int(s->at[s->count - 1].length,
                                                          length - s->at[s->count - 1].start);
    }
    if (length < view->length) {
        view->position -= view->length - length;
        view->length = length;
    }
    specdec__view_settle(view, kv);
}

/* Puts the keys [from, from + count) of another view behind those of a view, without a copy: both have a part in the
   pages. Returns 0 when there is no room for so many segments, or when pages that a window would reach have been
   returned; what was put stays until the view is truncated. */
static int specdec__view_share(specdec__view *view, specdec__kv *kv, const specdec__view *other,
                                               int from, int count)
{
    const int end = from + count;
    int span, i;

    specdec__view_unreserve(view, kv);
    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__segments *s = &view->span[span];
        const specdec__segments *source = &other->span[span];

        if (!specdec__view_holds(other, kv, span, from, end))
            return 0;
        for (i = 0; i < source->count; i++) {
            const specdec__segment *a = &source->at[i];
            const int first = specdec__max_int(a->start, from), last = specdec__min_int(a->start + a->length, end);

            if (first >= last)
                continue;
            if (s->count == view->capacity)
                return 0;
            s->at[s->count].page = a->page;
            s->at[s->count].from = a->from + first - a->start;
            s->at[s->count].length = last - first;
            s->at[s->count++].start = view->length + first - from;
            kv->span[span].views[a->page]++;
        }
    }
    view->length += count;
    view->position = other->position - (other->length - end);
    specdec__view_settle(view, kv);
    return 1;
}

/* The slots of logical positions [from, from + count), all committed. */
static void specdec__view_slots(const specdec__segments *segments, int from, int count, int *slots)
{
    int low = 0, high = segments->count - 1, i = 0;

    while (low < high) { /* the last segment that starts at or before from */
        int middle = (low + high + 1) / 2;

        if (segments->at[middle].start <= from)
            low = middle;
        else
            high = middle - 1;
    }
    for (; i < count; low++) {
        const specdec__segment *s = &segments->at[low];
        int at = from + i - s->start;

        for (; i < count && at < s->length; i++, at++)
            slots[i] = s->page * SPECDEC__KEYS + s->from + at;
    }
}

/* Stores one key (dim floats, rotated, padded with zeros) at k of a page and one value half_bytes behind, at place
   `at`. */
static void specdec__kv_store(specdec__kv *kv, const specdec__kernels *kernels, unsigned char *k, int at,
                              const float *key, const float *value)
{
    unsigned char *v = k + kv->half_bytes;
    const int dim = kv->dim;
    const size_t codes = (size_t)dim * SPECDEC__KEYS;
    unsigned char halves[32];
    int8_t row[32];
    int d, i;

    switch (kv->type) {
    case SPECDEC__KV_F32:
        for (d = 0; d < dim; d++)
            memcpy(k + ((size_t)d * SPECDEC__KEYS + (size_t)at) * 4, key + d, 4);
        memcpy(v + (size_t)at * (size_t)dim * 4, value, (size_t)dim * 4);
        break;
    case SPECDEC__KV_F16:
        for (d = 0; d < dim; d += 16) {
            kernels->float_to_f16(key + d, 16, halves);
            for (i = 0; i < 16; i++)
                memcpy(k + ((size_t)(d + i) * SPECDEC__KEYS + (size_t)at) * 2, halves + i * 2, 2);
        }
        kernels->float_to_f16(value, dim, v + (size_t)at * (size_t)dim * 2);
        break;
    default:
        for (d = 0; d < dim; d += 32) {
            unsigned char *own = k + specdec__kv_tile_block(kv, at, d);
            float scale = kernels->float_to_codes(key + d, row);

            specdec__store_u16(own + at % SPECDEC__ROWS * 2, specdec__f16_from_float(scale));
            specdec__quant_move_units(4, 8, 0, (const unsigned char *)row, 4, own + 32 + at % SPECDEC__ROWS * 4,
                                      4 * SPECDEC__ROWS);
            scale = kernels->float_to_codes(value + d, (int8_t *)v + (size_t)at * (size_t)dim + (size_t)d);
            specdec__store_u16(v + codes + ((size_t)at * (size_t)(dim / 32) + (size_t)(d / 32)) * 2,
                               specdec__f16_from_float(scale));
        }
        break;
    }
}

/* Keys (dim, 64) of a page that are no tiles as floats, at least those in the first `slots`: in place for f32, else
   converted into buffer. */
static const float *specdec__kv_keys_as_floats(const specdec__kv *kv, const specdec__kernels *kernels,
                                               const unsigned char *half, int slots, float *buffer)
{
    int d;

    if (kv->type == SPECDEC__KV_F32)
        return (const float *)(const void *)half;
    if (slots > SPECDEC__KEYS / 2) {
        kernels->f16_to_float(half, kv->dim * SPECDEC__KEYS, buffer);
        return buffer;
    }
    for (d = 0; d < kv->dim; d++)
        kernels->f16_to_float(half + (size_t)d * SPECDEC__KEYS * 2, specdec__round_up(slots, 16),
                              buffer + d * SPECDEC__KEYS);
    return buffer;
}

/* The same for values (64, dim). */
static const float *specdec__kv_values_as_floats(const specdec__kv *kv, const specdec__kernels *kernels,
                                                 const unsigned char *half, int slots, float *buffer)
{
    const int codes = kv->dim * SPECDEC__KEYS, count = kv->dim * slots;
    float scales[32];
    int i;

    if (kv->type == SPECDEC__KV_F32)
        return (const float *)(const void *)half;
    if (kv->type == SPECDEC__KV_F16) {
        kernels->f16_to_float(half, count, buffer);
    } else {
        for (i = 0; i < count; i += 32 * 32) {
            kernels->f16_to_float(half + codes + i / 16, 32, scales);
            kernels->codes_to_float((const int8_t *)half + i, scales, 32 * 32, buffer + i);
        }
    }
    return buffer;
}

/* =====================================================================================================================
 * >>forward (private): one function for prefill, one token, a tree, several views. It knows no speculation: nodes in,
 *     rows of logits out. May call: >>base >>pool >>quant >>kernel >>op >>model >>kv
 * ================================================================================================================== */

#define SPECDEC__COLUMNS 64 /* columns that share one pass over the weights; wider steps take several */

/* The nodes of a step, in topological order. The first `done` of them have been run by an earlier call, since which no
   view has changed: only their keys and values are looked at. */
typedef struct specdec__batch {
    int n, done;
    const int32_t *tokens;         /* (n) */
    const int32_t *parents;        /* (n): an earlier node of the same view, or -1: the view's end */
    specdec__view *const *views;   /* (n) */
    const unsigned char *wanted;   /* (n): rows of logits to compute; NULL: all that are run */
} specdec__batch;

/* States that a step hands out: layers[i], the residual stream after so many layers; or SPECDEC_STATE_FINAL. */
typedef struct specdec__taps {
    const int *layers; /* (count) */
    int count;
    int first;         /* the first of the nodes that are run whose states are wanted */
    float *out;        /* (wanted nodes, count, embedding); NULL: none are */
} specdec__taps;

/* Buffers of one thread. */
typedef struct specdec__scratch {
    specdec__panel *panel;     /* (2) */
    unsigned char *tile;       /* (2): 16 rows x 256 values, repacked when weights stay in the file */
    float *sums;               /* (2, 64 columns, 16 rows) */
    float *keys, *values;      /* two pages as floats: (2, dim, 64), unless keys are tiles, and (2, 64, dim) */
    int page[2], slots[2];     /* which pages of the unit at work those are, as many of their slots; -1: none */
    float *gathered;           /* (64, dim): values of a block that lies in several pages */
    float *queries;            /* (4, dim) */
    float *scores;             /* (4 or, where keys are tiles, 64 queries, 64) */
    float *out;                /* (dim): a value, padded with zeros */
    float *partner;            /* (dim) */
} specdec__scratch;

/* A model with its KV cache and everything a step needs. */
typedef struct specdec__context {
    const specdec__model *model;
    const specdec__kernels *kernels;
    specdec__pool *pool;
    int threads;               /* of the pool's, as many as help */
    specdec__kv kv;
    int most;                  /* nodes of a step, at most */
    int most_rows;             /* rows of logits of a step, at most */
    specdec__scratch *scratch; /* (threads) */
    const specdec__matrix *embedding, *output; /* the model's, or those that it borrows */
    int e, q, kv_width, ff;    /* strides of the rows below: see specdec__forward_stride */
    float *x;                  /* (most, e): residual stream */
    float *h;                  /* (most, max(e, q, twice e where the layer reads states)): what the next matrix reads;
                                  after a step, states: (row_count, e) */
    float *cosine, *sine;      /* (2, most, dim): of SPECDEC__ROPE, of SPECDEC__ROPE_OTHER if a layer has it */
    const double *frequency[2];
    /* while a layer attends */
    float *queries;            /* (most, q) */
    float *keys, *values;      /* (most, kv_width) */
    float *highest;            /* (most, heads): the largest score so far */
    float *total;              /* (most, heads, 16): sums of exp(score - highest) */
    float *rotated;            /* (most, heads, dim): queries, rotated and scaled */
    float *attended;           /* (most, heads, dim): running weighted sum of values */
    /* the rest of the time, in the same place */
    float *hidden;             /* (most, ff): gate, then gated feed-forward */
    float *y;                  /* (most, max(e, ff)): up; what x grows by */
    specdec__columns columns;
    specdec__columns turned;   /* rotated queries as columns (kv head, node, query head), where keys are tiles */
    int *slots[SPECDEC__SPANS]; /* (most) by node */
    int *place, *position;     /* (most) by node: how many keys lie before its own, what RoPE turns it by */
    int *trunk;                /* (most) by node: whether all nodes before it in its view are its ancestors */
    int *rows;                 /* (row_count) rows of the buffers whose logits are wanted */
    float *logits;             /* (most_rows, output rows) */
    /* room for a batch */
    int32_t *tokens, *parents; /* (most) */
    specdec__view **views;     /* (most) */
    unsigned char *wanted;     /* (most) */
    int *path;                 /* (most): nodes to be committed */
    specdec__taps taps[2];     /* of the steps to come: a caller's, the drafters' */
    float *reads;              /* (n, specdec__forward_read_stride) states that the next step reads; NULL: x holds what
                                  comes of them. For architectures that read states */
    /* the step under way */
    const specdec__batch *batch;
    int first, n, row_count;   /* nodes [first, first + n) are run: row i of the buffers is node first + i */
} specdec__context;

/* How many queries specdec__forward_scores takes at once. */
static int specdec__forward_queries(const specdec__context *c)
{
    return specdec__kv_types[c->kv.type].tiles ? SPECDEC__COLUMNS : 4;
}

SPECDEC__FOR_SIZE

static void specdec__context_scratch(specdec__context *c, int threads, specdec__arena *arena)
{
    specdec__scratch unused, *s;
    int i;

    c->scratch = SPECDEC__TAKE(arena, specdec__scratch, threads);
    for (i = 0; i < threads; i++) {
        s = c->scratch ? &c->scratch[i] : &unused;
        s->panel = SPECDEC__TAKE(arena, specdec__panel, 2);
        s->tile = SPECDEC__TAKE(arena, unsigned char, 2 * SPECDEC__PANEL * SPECDEC__ROWS * 4);
        s->sums = SPECDEC__TAKE(arena, float, 2 * SPECDEC__COLUMNS * SPECDEC__ROWS);
        if (!specdec__kv_types[c->kv.type].tiles)
            s->keys = SPECDEC__TAKE(arena, float, 2 * c->kv.dim * SPECDEC__KEYS);
        s->values = SPECDEC__TAKE(arena, float, 2 * c->kv.dim * SPECDEC__KEYS);
        s->gathered = SPECDEC__TAKE(arena, float, c->kv.dim * SPECDEC__KEYS);
        s->queries = SPECDEC__TAKE(arena, float, 4 * c->kv.dim);
        s->scores = SPECDEC__TAKE(arena, float, (size_t)specdec__forward_queries(c) * SPECDEC__KEYS);
        s->out = SPECDEC__TAKE(arena, float, c->kv.dim);
        s->partner = SPECDEC__TAKE(arena, float, c->kv.dim);
    }
}

/* Floats between rows that make them an odd number of cache lines: else rows compete for the same sets. */
#define SPECDEC__APART 16

static int specdec__forward_stride(int width) { return specdec__round_up(width, 32) + SPECDEC__APART; }

/* Floats between rows of the states that a model reads. */
static int specdec__forward_read_stride(const specdec__model *m)
{
    return specdec__forward_stride(m->reads.count * m->reads.width);
}

static void specdec__columns_take(specdec__columns *columns, size_t count, size_t width, specdec__arena *arena)
{
    columns->codes = SPECDEC__TAKE(arena, int8_t, count * width);
    columns->scale = SPECDEC__TAKE(arena, float, count * (width / 32));
    columns->pair32 = SPECDEC__TAKE(arena, int32_t, count * (width / 32));
    columns->pair16 = SPECDEC__TAKE(arena, int32_t, count * (width / 16));
    columns->sum32 = SPECDEC__TAKE(arena, float, count * (width / 32));
    columns->sum16 = SPECDEC__TAKE(arena, float, count * (width / 16));
}

/* What layers need while they attend, and the rest of the time: never both, so they share memory. */
static void specdec__context_halves(specdec__context *c, size_t n, specdec__arena *arena)
{
    const size_t heads = (size_t)c->model->heads, begin = arena->used;
    size_t end;

    c->queries = SPECDEC__TAKE(arena, float, n * (size_t)c->q);
    c->keys = SPECDEC__TAKE(arena, float, n * (size_t)c->kv_width);
    c->values = SPECDEC__TAKE(arena, float, n * (size_t)c->kv_width);
    c->highest = SPECDEC__TAKE(arena, float, n * heads);
    c->total = SPECDEC__TAKE(arena, float, n * heads * 16);
    c->rotated = SPECDEC__TAKE(arena, float, n * heads * (size_t)c->kv.dim);
    c->attended = SPECDEC__TAKE(arena, float, n * heads * (size_t)c->kv.dim);
    end = arena->used;
    if (end != SIZE_MAX)
        arena->used = begin;
    c->hidden = SPECDEC__TAKE(arena, float, n * (size_t)c->ff);
    c->y = SPECDEC__TAKE(arena, float, n * (size_t)specdec__max_int(c->e, c->ff));
    if (arena->used < end)
        arena->used = end;
}

/* Lays out a context for the views and steps that `room` tells of, and most_rows rows of logits. The embedding and the
   output that a model lacks are the lender's. */
static void specdec__context_init(specdec__context *c, const specdec__model *model, const specdec__model *lender,
                                  const specdec__kernels *kernels, specdec__pool *pool, int threads, int kv_type,
                                  const specdec__room *room, int most_rows, specdec__arena *arena)
{
    const int is_long = model->rope_frequency[SPECDEC__ROPE_LONG] && room->length > model->rope_original;
    const int reads = model->architecture->reads ? specdec__forward_stride(2 * model->embedding) : 0;
    size_t n = (size_t)room->most, widest, ropes;
    int i;

    memset(c, 0, sizeof *c);
    c->model = model;
    c->embedding = model->token_embedding.type ? &model->token_embedding : &lender->token_embedding;
    c->output = model->output.type ? &model->output : &lender->output;
    c->kernels = kernels;
    c->pool = pool;
    c->threads = threads;
    c->most = room->most;
    c->most_rows = most_rows;
    c->frequency[0] = model->rope_frequency[is_long ? SPECDEC__ROPE_LONG : SPECDEC__ROPE];
    c->frequency[1] = model->rope_frequency[SPECDEC__ROPE_OTHER];
    ropes = model->architecture->base != 0 ? 2 : 1;
    specdec__kv_init(&c->kv, kv_type, model, room, arena);
    specdec__context_scratch(c, threads, arena);
    c->e = specdec__forward_stride(model->embedding);
    c->q = specdec__forward_stride(model->heads * model->head_dim);
    c->kv_width = specdec__forward_stride(model->kv_heads * model->head_dim);
    c->ff = specdec__forward_stride(model->feed_forward);
    widest = (size_t)specdec__max_int(specdec__max_int(c->e, c->q), specdec__max_int(c->ff, reads));
    widest = (size_t)specdec__max_int((int)widest, reads ? specdec__forward_read_stride(model) : 0);
    c->x = SPECDEC__TAKE(arena, float, n * (size_t)c->e);
    c->h = SPECDEC__TAKE(arena, float, n * (size_t)specdec__max_int(specdec__max_int(c->e, c->q), reads));
    c->cosine = SPECDEC__TAKE(arena, float, ropes * n * (size_t)c->kv.dim);
    c->sine = SPECDEC__TAKE(arena, float, ropes * n * (size_t)c->kv.dim);
    specdec__context_halves(c, n, arena);
    specdec__columns_take(&c->columns, n, widest, arena);
    if (specdec__kv_types[kv_type].tiles)
        specdec__columns_take(&c->turned, n * (size_t)model->heads, (size_t)c->kv.dim, arena);
    for (i = 0; i < SPECDEC__SPANS; i++)
        c->slots[i] = SPECDEC__TAKE(arena, int, n);
    c->place = SPECDEC__TAKE(arena, int, n);
    c->position = SPECDEC__TAKE(arena, int, n);
    c->trunk = SPECDEC__TAKE(arena, int, n);
    c->rows = SPECDEC__TAKE(arena, int, n);
    c->logits = SPECDEC__TAKE(arena, float,
                              specdec__size_add(specdec__size_multiply((size_t)most_rows, (size_t)c->output->rows),
                                                15));
    c->tokens = SPECDEC__TAKE(arena, int32_t, n);
    c->parents = SPECDEC__TAKE(arena, int32_t, n);
    c->wanted = SPECDEC__TAKE(arena, unsigned char, n);
    c->path = SPECDEC__TAKE(arena, int, n);
    c->views = SPECDEC__TAKE(arena, specdec__view *, n);
}

/* A view of as many keys as room->length says, and of the nodes of a step. */
static void specdec__context_view(specdec__view *view, const specdec__room *room, specdec__arena *arena)
{
    specdec__view_init(view, (room->length + 2 * room->most) / SPECDEC__KEYS + 2, arena);
}

SPECDEC__FOR_SPEED

/* --- matrices ----------------------------------------------------------------------------------------------------- */

/* A tile of 16 rows of a matrix. */
typedef struct specdec__place {
    const specdec__matrix *matrix;
    int tile;
} specdec__place;

SPECDEC__INLINE const unsigned char *specdec__place_bytes(const specdec__place *place)
{
    const specdec__matrix *matrix = place->matrix;

    return (matrix->tiles ? matrix->tiles : matrix->file) + (size_t)place->tile * specdec__matrix_tile_bytes(matrix);
}

/* sums[i] (count, 16) = place i times columns [column, column + count). The places' matrices have the same type and
   length. next: what this thread is going to multiply after them. */
static void specdec__forward_tiles(const specdec__context *c, const specdec__place *places, int place_count,
                                   const specdec__place *next, int column, int count,
                                   specdec__scratch *scratch, float *const *sums)
{
    const specdec__matrix *matrix = places->matrix;
    const size_t room = SPECDEC__PANEL * SPECDEC__ROWS * 4;
    specdec__tiles tiles;
    int from, i;

    tiles.type = matrix->type;
    tiles.tile[1] = NULL;
    for (i = 0; i < place_count; i++) {
        tiles.tile[i] = specdec__place_bytes(&places[i]);
        tiles.next[i] = specdec__place_bytes(&next[i]);
    }
    if (matrix->tiles) {
        specdec__kernels_multiply(c->kernels, &tiles, matrix->columns / 32, scratch->panel, &c->columns, 0, column,
                                  count, sums);
        return;
    }
    for (from = 0; from < matrix->columns; from += SPECDEC__PANEL) {
        int values = specdec__min_int(SPECDEC__PANEL, matrix->columns - from);
        size_t blocks = (size_t)(values / matrix->type->block);

        for (i = 0; i < place_count; i++) {
            const specdec__matrix *own = places[i].matrix;
            int rows = specdec__min_int(SPECDEC__ROWS, own->rows - places[i].tile * SPECDEC__ROWS);

            tiles.tile[i] = scratch->tile + (size_t)i * room;
            specdec__quant_interleave(
                own->type, specdec__place_bytes(&places[i]) + (size_t)(from / own->type->block) * own->type->bytes,
                own->row_bytes, rows, blocks, scratch->tile + (size_t)i * room);
        }
        specdec__kernels_multiply(c->kernels, &tiles, values / 32, scratch->panel, &c->columns, from / 32, column,
                                  count, sums);
    }
}

/* Where the rows of a matrix go: out (n, stride) = sums + bias. */
typedef struct specdec__output {
    const specdec__matrix *matrix;
    const float *bias;
    float *out;
    size_t stride;
} specdec__output;

static void specdec__forward_put(const specdec__context *c, const specdec__output *t, int tile, int column, int count,
                                 const float *sums)
{
    int rows = t->matrix->rows - tile * SPECDEC__ROWS, i;
    const float *bias = t->bias ? t->bias + tile * SPECDEC__ROWS : NULL;
    float *out = t->out + (size_t)column * t->stride + (size_t)tile * SPECDEC__ROWS, last[SPECDEC__ROWS];

    if (rows >= SPECDEC__ROWS) {
        c->kernels->put(sums, count, bias, out, t->stride);
        return;
    }
    for (i = 0; i < count; i++, sums += SPECDEC__ROWS, out += t->stride) { /* the last, partial tile */
        c->kernels->put(sums, 1, bias, last, 0);
        memcpy(out, last, (size_t)rows * sizeof *out);
    }
}

/* Whose tile is item i when the tiles of several matrices are counted through? places (2): it and the one after it. */
static const specdec__output *specdec__forward_place(const specdec__output *targets, int i, specdec__place *places)
{
    for (; i >= specdec__matrix_tiles(targets->matrix); targets++)
        i -= specdec__matrix_tiles(targets->matrix);
    places[0].matrix = places[1].matrix = targets->matrix;
    places[0].tile = i;
    places[1].tile = i + 1;
    return targets;
}

/* Several matrices over the same columns, their tiles shared out among the threads, two at a time. */
static void specdec__forward_multiply(specdec__context *c, int thread, const specdec__output *targets, int count)
{
    specdec__scratch *scratch = &c->scratch[thread];
    float *sums[2];
    int tiles = 0, passes = (c->columns.n + SPECDEC__COLUMNS - 1) / SPECDEC__COLUMNS, i, pair;
    specdec__walk walk;

    sums[0] = scratch->sums;
    sums[1] = scratch->sums + SPECDEC__COLUMNS * SPECDEC__ROWS;
    for (i = 0; i < count; i++)
        tiles += specdec__matrix_tiles(targets[i].matrix);
    for (specdec__walk_begin(&walk, c->pool, tiles * passes, 2); walk.at < walk.count; specdec__walk_on(&walk, pair)) {
        specdec__place places[2], next[2];
        const int pass = passes > 1 ? walk.at / tiles : 0, column = pass * SPECDEC__COLUMNS; /* divisions are slow */
        const int columns = specdec__min_int(SPECDEC__COLUMNS, c->columns.n - column);
        const specdec__output *t = specdec__forward_place(targets, walk.at - pass * tiles, places);
        int after;

        pair = places[1].tile < specdec__matrix_tiles(t->matrix) && walk.at + 1 < walk.end ? 2 : 1;
        after = specdec__walk_next(&walk, pair);
        specdec__forward_place(targets, passes > 1 ? after % tiles : after, next);
        specdec__forward_tiles(c, places, pair, next, column, columns, scratch, sums);
        for (i = 0; i < pair; i++)
            specdec__forward_put(c, t, places[i].tile, column, columns, sums[i]);
    }
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* A thread's part of n rows of floats: whole rows, or blocks of 32 of each if they are few. */
typedef struct specdec__part {
    int first, last; /* rows */
    int from, to;    /* blocks of each */
} specdec__part;

static specdec__part specdec__forward_part(const specdec__context *c, int thread, int n, int stride)
{
    const int threads = specdec__pool_active(c->pool), blocks = (stride - SPECDEC__APART) / 32,
              whole = n >= 16 * threads;
    specdec__part part;

    part.first = whole ? n * thread / threads : 0;
    part.last = whole ? n * (thread + 1) / threads : n;
    part.from = whole ? 0 : blocks * thread / threads;
    part.to = whole ? blocks : blocks * (thread + 1) / threads;
    return part;
}

/* What the next matrices read: rows of values (n, stride), which are made first from something else if one of these is
   set. */
typedef struct specdec__input {
    float *values;
    int n, stride;
    const float *norm; /* its weight: values = norm of row rows[i] of x (or i) */
    const int *rows;
    const float *up;   /* (n, stride): values = activation(values) * up */
} specdec__input;

/* Quantises an input into c->columns. */
static void specdec__forward_quantise(specdec__context *c, int thread, const specdec__input *in)
{
    const specdec__model *m = c->model;
    const specdec__part part = specdec__forward_part(c, thread, in->n, in->stride);
    const int at = part.from * 32, width = in->stride - SPECDEC__APART;
    specdec__columns columns; /* a copy but for what thread 0 is going to write */
    int i;

    columns.codes = c->columns.codes;
    columns.scale = c->columns.scale;
    columns.pair32 = c->columns.pair32;
    columns.pair16 = c->columns.pair16;
    columns.sum32 = c->columns.sum32;
    columns.sum16 = c->columns.sum16;
    columns.n = in->n;
    columns.stride = in->stride;
    columns.values = in->values;
    for (i = part.first; i < part.last; i++) {
        float *row = in->values + (size_t)i * (size_t)in->stride;

        if (in->norm)
            c->kernels->norm(c->x + (size_t)(in->rows ? in->rows[i] : i) * (size_t)in->stride, in->norm, m->epsilon,
                             width, at, part.to * 32, row);
        if (in->up)
            c->kernels->activate[m->architecture->activation](row + at, in->up + (size_t)i * (size_t)in->stride + at,
                                                              part.to * 32 - at);
        c->kernels->quantise(row, part.from, part.to, i, &columns);
    }
    if (thread == 0) {
        c->columns.n = in->n;
        c->columns.stride = in->stride;
        c->columns.values = in->values;
    }
}

/* x += scale * y, or scale times the norm of y; h is free for that. */
static void specdec__forward_grow(specdec__context *c, int thread, const float *norm)
{
    const specdec__part part = specdec__forward_part(c, thread, c->n, c->e);
    const int at = part.from * 32, count = part.to * 32 - at;
    int i;

    for (i = part.first; i < part.last; i++) {
        float *y = c->y + (size_t)i * (size_t)c->e, *h = c->h + (size_t)i * (size_t)c->e;

        if (norm)
            c->kernels->norm(y, norm, c->model->epsilon, c->e - SPECDEC__APART, at, part.to * 32, h);
        c->kernels->add_scaled(c->x + (size_t)i * (size_t)c->e + at, c->model->fact[SPECDEC__RESIDUAL_SCALE],
                               (norm ? h : y) + at, count);
    }
}

/* Scales and caps logits, 16 at a time: there is room behind the last. */
static void specdec__forward_finish(const specdec__context *c, int thread)
{
    const size_t parts = ((size_t)c->row_count * (size_t)c->output->rows + 15) / 16,
                 threads = (size_t)specdec__pool_active(c->pool);
    const size_t to = parts * ((size_t)thread + 1) / threads * 16;
    size_t at = parts * (size_t)thread / threads * 16;
    int count;

    for (; at < to; at += (size_t)count) {
        count = (int)(to - at < 4096 ? to - at : 4096);
        c->kernels->scale(c->logits + at, 1 / c->model->fact[SPECDEC__LOGIT_DIVISOR], count);
        if (c->model->fact[SPECDEC__LOGIT_CAP] > 0)
            c->kernels->cap(c->logits + at, c->model->fact[SPECDEC__LOGIT_CAP], count);
    }
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

/* cosine and sine (dim) of a row's position, laid out so that x * cosine + partner * sine rotates. */
static void specdec__forward_angles(specdec__context *c, int rope, int row)
{
    const specdec__model *m = c->model;
    const size_t at = ((size_t)rope * (size_t)c->most + (size_t)row) * (size_t)c->kv.dim;
    const float scale = m->rope_scale[rope];
    float *cosine = c->cosine + at, *sine = c->sine + at;
    int half = m->rope_dim / 2, i;

    for (i = m->rope_dim; i < c->kv.dim; i++) {
        cosine[i] = 1;
        sine[i] = 0;
    }
    for (i = 0; i < half; i++) {
        int a = m->architecture->halves ? i : 2 * i, b = m->architecture->halves ? i + half : 2 * i + 1;
        float s, k;

        specdec__sine_cosine((double)c->position[c->first + row] * c->frequency[rope][i], &s, &k);
        cosine[a] = cosine[b] = k * scale;
        sine[b] = s * scale;
        sine[a] = -sine[b];
    }
}

/* One head of one row of the projection: optional norm, rotation; out is padded to dim with zeros. */
static void specdec__forward_head(const specdec__context *c, int rope, int row, const float *from, const float *norm,
                                  float *partner, float *out)
{
    const specdec__model *m = c->model;
    const size_t at = ((size_t)rope * (size_t)c->most + (size_t)row) * (size_t)c->kv.dim;
    int dim = c->kv.dim, half = m->rope_dim / 2, i;

    memcpy(out, from, (size_t)m->head_dim * sizeof *out);
    for (i = m->head_dim; i < dim; i++)
        out[i] = 0;
    if (norm) {
        int padded = specdec__round_up(m->head_dim, 16);

        c->kernels->norm(out, norm, m->epsilon, m->head_dim, 0, padded, out);
    }
    memset(partner, 0, (size_t)dim * sizeof *partner);
    if (m->architecture->halves) {
        memcpy(partner, out + half, (size_t)half * sizeof *out);
        memcpy(partner + half, out, (size_t)half * sizeof *out);
    } else {
        for (i = 0; i < m->rope_dim; i += 2) {
            partner[i] = out[i + 1];
            partner[i + 1] = out[i];
        }
    }
    c->kernels->rotate(out, partner, c->cosine + at, c->sine + at, dim);
}

/* Which column of c->turned a query is: those that see the same keys lie together. */
static int specdec__forward_column(const specdec__context *c, int row, int head)
{
    int group = c->model->heads / c->model->kv_heads;

    return (head / group * c->n + row) * group + head % group;
}

/* Stores key and value of one row and kv head, and rotates the queries that share it. */
static void specdec__forward_rotate(specdec__context *c, int thread, const specdec__layer *l, int row, int head)
{
    const specdec__model *m = c->model;
    const size_t dim = (size_t)c->kv.dim, size = (size_t)m->head_dim;
    int group = m->heads / m->kv_heads, slot = c->slots[l->span][c->first + row], i;
    specdec__scratch *s = &c->scratch[thread];

    specdec__forward_head(c, l->rope, row, c->keys + (size_t)row * (size_t)c->kv_width + (size_t)head * size,
                          l->vector[SPECDEC__K_NORM],
                          s->partner, s->queries);
    memset(s->out, 0, dim * sizeof *s->out);
    memcpy(s->out, c->values + (size_t)row * (size_t)c->kv_width + (size_t)head * size, size * sizeof *s->out);
    specdec__kv_store(&c->kv, c->kernels, specdec__kv_keys(&c->kv, l->span, slot / SPECDEC__KEYS, l->place, head),
                      slot % SPECDEC__KEYS,
                      s->queries, s->out);
    for (i = head * group; i < (head + 1) * group; i++) {
        float *out = c->rotated + ((size_t)row * (size_t)m->heads + (size_t)i) * dim;

        specdec__forward_head(c, l->rope, row, c->queries + (size_t)row * (size_t)c->q + (size_t)i * size,
                              l->vector[SPECDEC__Q_NORM], s->partner, out);
        c->kernels->scale(out, m->fact[SPECDEC__QUERY_SCALE], c->kv.dim);
        if (specdec__kv_types[c->kv.type].tiles)
            c->kernels->quantise(out, 0, c->kv.dim / 32, specdec__forward_column(c, row, i), &c->turned);
    }
}

/* A unit of attention: query heads [from, to) of one kv head of a layer, all nodes. */
typedef struct specdec__unit {
    const specdec__layer *layer;
    int head, from, to;
} specdec__unit;

/* Which keys of a block a node sees, or several: [from, to) of 64. */
typedef struct specdec__range {
    int from, to;
} specdec__range;

static specdec__range specdec__forward_range(const specdec__context *c, const specdec__unit *u, int node, int block)
{
    const int window = c->kv.span[u->layer->span].window, end = c->place[node] + 1 - block * SPECDEC__KEYS;
    specdec__range range;

    range.to = specdec__min_int(SPECDEC__KEYS, end);
    range.from = window ? specdec__max_int(end - window, 0) : 0;
    return range;
}

/* The slots of the keys in a range of a block that a node sees: committed ones, then its ancestors and itself. */
static void specdec__forward_slots(const specdec__context *c, const specdec__unit *u, int node, int block,
                                   specdec__range range, int *slots)
{
    const specdec__view *view = c->batch->views[node];
    const int base = block * SPECDEC__KEYS, committed = specdec__min_int(range.to, view->length - base) - range.from;
    const int own = base + range.from + specdec__max_int(committed, 0);
    int at = node;

    if (committed > 0)
        specdec__view_slots(&view->span[u->layer->span], base + range.from, committed, slots + range.from);
    for (; at >= 0 && c->place[at] >= own; at = c->batch->parents[at])
        if (c->place[at] < base + range.to)
            slots[c->place[at] - base] = c->slots[u->layer->span][at];
}

/* Keys, unless they are tiles, and values in the first slots of a page as floats. */
static void specdec__forward_page(const specdec__context *c, specdec__scratch *s, const specdec__unit *u, int page,
                                  int slots, const float **keys, const float **values)
{
    const size_t size = (size_t)c->kv.dim * SPECDEC__KEYS;
    const int tiles = specdec__kv_types[c->kv.type].tiles;
    const unsigned char *k = specdec__kv_keys(&c->kv, u->layer->span, page, u->layer->place, u->head);
    float *k_buffer = tiles ? NULL : s->keys + (size_t)(page & 1) * size,
          *v_buffer = s->values + (size_t)(page & 1) * size;

    *keys = k_buffer;
    *values = v_buffer;
    if (s->page[page & 1] == page && s->slots[page & 1] >= slots)
        return;
    if (!tiles)
        *keys = specdec__kv_keys_as_floats(&c->kv, c->kernels, k, slots, k_buffer);
    *values = specdec__kv_values_as_floats(&c->kv, c->kernels, k + c->kv.half_bytes, slots, v_buffer);
    if (*values == v_buffer)
        s->page[page & 1] = page;
    s->slots[page & 1] = slots;
}

/* Adds a block, whose scores (count, 64) are given, to the softmax and the weighted sums of up to four queries. */
static void specdec__forward_fold(specdec__context *c, float *scores, const size_t *query, const specdec__range *range,
                                  int count, const float *values)
{
    const float cap = c->model->fact[SPECDEC__SCORE_CAP];
    const int dim = c->kv.dim;
    float *out[4], factor;
    int i, equal = 1;

    if (cap > 0)
        c->kernels->cap(scores, cap, count * SPECDEC__KEYS);
    for (i = 0; i < count; i++) {
        out[i] = c->attended + query[i] * (size_t)dim;
        factor = c->kernels->softmax(scores + i * SPECDEC__KEYS, range[i].from, range[i].to, &c->highest[query[i]],
                                     c->total + query[i] * 16);
        if (factor < 1)
            c->kernels->scale(out[i], factor, dim);
        equal &= range[i].from == range[0].from && range[i].to == range[0].to;
    }
    for (i = 0; i < (equal ? 1 : count); i++)
        c->kernels->weigh(scores + i * SPECDEC__KEYS + range[i].from, equal ? count : 1, values + range[i].from * dim,
                          range[i].to - range[i].from, dim, out + i);
}

/* s->scores (count, 64) of columns [column, column + count) of c->turned with the 4 tiles of keys of a page. */
static void specdec__forward_tile_scores(specdec__context *c, specdec__scratch *s, const unsigned char *keys,
                                         int column, int count)
{
    const size_t bytes = (size_t)c->kv.dim / 32 * 34 * SPECDEC__ROWS;
    float *sums[2];
    specdec__tiles tiles;
    int from, i, t;

    sums[0] = s->sums;
    sums[1] = s->sums + SPECDEC__COLUMNS * SPECDEC__ROWS;
    tiles.type = specdec__quant_find(SPECDEC__TYPE_Q8_0);
    for (from = 0; from < SPECDEC__KEYS; from += 2 * SPECDEC__ROWS) {
        for (t = 0; t < 2; t++) {
            tiles.tile[t] = keys + (size_t)(from / SPECDEC__ROWS + t) * bytes;
            tiles.next[t] = tiles.tile[t] + 2 * bytes;
        }
        specdec__kernels_multiply(c->kernels, &tiles, c->kv.dim / 32, s->panel, &c->turned, 0, column, count, sums);
        for (i = 0; i < count; i++)
            for (t = 0; t < 2; t++)
                memcpy(s->scores + i * SPECDEC__KEYS + from + t * SPECDEC__ROWS, sums[t] + i * SPECDEC__ROWS,
                       SPECDEC__ROWS * sizeof(float));
    }
}

/* s->scores (count, 64) of queries, in the order of c->turned, with the keys of a page. */
static void specdec__forward_scores(specdec__context *c, specdec__scratch *s, const specdec__unit *u, int page,
                                    const float *keys, const size_t *query,
                                    int count)
{
    const size_t dim = (size_t)c->kv.dim, heads = (size_t)c->model->heads;
    const float *rotated = c->rotated + query[0] * dim;
    int i;

    if (specdec__kv_types[c->kv.type].tiles) {
        specdec__forward_tile_scores(c, s, specdec__kv_keys(&c->kv, u->layer->span, page, u->layer->place, u->head),
                                     specdec__forward_column(c, (int)(query[0] / heads),
                                                             (int)(query[0] % heads)), count);
        return;
    }
    if (query[count - 1] - query[0] != (size_t)(count - 1)) {
        for (i = 0; i < count; i++)
            memcpy(s->queries + (size_t)i * dim, c->rotated + query[i] * dim, dim * sizeof(float));
        rotated = s->queries;
    }
    c->kernels->scores(rotated, c->kv.dim, count, keys, s->scores);
}

/* Nodes [first, last) over a block of keys that lie in the first slots of one page, each in its own. */
static SPECDEC__NOINLINE void specdec__forward_aligned(specdec__context *c, specdec__scratch *s, const specdec__unit *u,
                                                       int first, int last, int block, int page, int slots)
{
    const int heads = c->model->heads, part = u->to - u->from, queries = (last - first) * part,
              most = specdec__forward_queries(c);
    /* columns of one node lie together, no others */
    const int apart = specdec__kv_types[c->kv.type].tiles && part < heads / c->model->kv_heads;
    const float *keys, *values;
    int at, count, i;

    specdec__forward_page(c, s, u, page, slots, &keys, &values);
    for (at = 0; at < queries; at += count) {
        specdec__range range[SPECDEC__COLUMNS];
        size_t query[SPECDEC__COLUMNS];

        count = specdec__min_int(most, apart ? part - at % part : queries - at);
        for (i = 0; i < count; i++) {
            int node = first + (at + i) / part;

            query[i] = (size_t)(node - c->first) * (size_t)heads + (size_t)(u->from + (at + i) % part);
            range[i] = specdec__forward_range(c, u, node, block);
        }
        specdec__forward_scores(c, s, u, page, keys, query, count);
        for (i = 0; i < count; i += 4)
            specdec__forward_fold(c, s->scores + i * SPECDEC__KEYS, query + i, range + i,
                                  specdec__min_int(4, count - i), values);
    }
}

/* One node over a block whose keys lie anywhere: scores page by page, then put into logical order. */
static SPECDEC__NOINLINE void specdec__forward_gathered(specdec__context *c, specdec__scratch *s,
                                                        const specdec__unit *u, int node, int block, const int *slots)
{
    const specdec__range seen = specdec__forward_range(c, u, node, block);
    const size_t dim = (size_t)c->kv.dim, heads = (size_t)c->model->heads;
    int at, i, j, done;

    for (at = u->from; at < u->to; at += 4) {
        int count = specdec__min_int(4, u->to - at);
        float logical[4][SPECDEC__KEYS] = {{0}};
        specdec__range range[4];
        size_t query[4];

        for (i = 0; i < count; i++) {
            query[i] = (size_t)(node - c->first) * heads + (size_t)(at + i);
            range[i] = seen;
        }
        for (done = seen.from; done < seen.to; ) {
            int page = slots[done] / SPECDEC__KEYS;
            const float *keys, *values;

            specdec__forward_page(c, s, u, page, SPECDEC__KEYS, &keys, &values);
            specdec__forward_scores(c, s, u, page, keys, query, count);
            for (j = done; j < seen.to && slots[j] / SPECDEC__KEYS == page; j++) {
                for (i = 0; i < count; i++)
                    logical[i][j] = s->scores[i * SPECDEC__KEYS + slots[j] % SPECDEC__KEYS];
                memcpy(s->gathered + (size_t)j * dim, values + (size_t)(slots[j] % SPECDEC__KEYS) * dim,
                       dim * sizeof(float));
            }
            done = j;
        }
        memcpy(s->scores, logical, (size_t)count * sizeof *logical);
        specdec__forward_fold(c, s->scores, query, range, count, s->gathered);
    }
}

/* How many nodes from `node` on see the same slots of a block, some more of them than others. all: what any of them
   sees. */
static int specdec__forward_sharing(const specdec__context *c, const specdec__unit *u, int node, int block,
                                    specdec__range *all)
{
    const specdec__view *view = c->batch->views[node];
    int committed = (block + 1) * SPECDEC__KEYS <= view->length, last = node + 1;

    *all = specdec__forward_range(c, u, node, block);
    for (; last < c->first + c->n && c->batch->views[last] == view &&
         (committed || (c->trunk[node] && c->trunk[last])); last++) {
        const specdec__range one = specdec__forward_range(c, u, last, block);

        if (one.from >= one.to)
            break;
        all->from = specdec__min_int(all->from, one.from);
        all->to = specdec__max_int(all->to, one.to);
    }
    return last - node;
}

/* A block of keys, all nodes. */
static void specdec__forward_block(specdec__context *c, specdec__scratch *s, const specdec__unit *u, int block)
{
    int node, share, slots[SPECDEC__KEYS], aligned, i;

    for (node = c->first; node < c->first + c->n; node += share) {
        specdec__range range = specdec__forward_range(c, u, node, block);

        share = 1;
        if (range.from >= range.to)
            continue;
        share = specdec__forward_sharing(c, u, node, block, &range);
        specdec__forward_slots(c, u, node + share - 1, block, range, slots);
        aligned = slots[range.from] % SPECDEC__KEYS == range.from;
        for (i = range.from + 1; i < range.to; i++)
            aligned &= slots[i] == slots[i - 1] + 1;
        if (aligned)
            specdec__forward_aligned(c, s, u, node, node + share, block, slots[range.from] / SPECDEC__KEYS, range.to);
        else
            for (i = node; i < node + share; i++)
                specdec__forward_gathered(c, s, u, i, block, slots);
    }
}

static void specdec__forward_attend(specdec__context *c, int thread, const specdec__unit *u)
{
    const int size = c->model->head_dim, window = c->kv.span[u->layer->span].window;
    specdec__scratch *s = &c->scratch[thread];
    int first = 1 << 30, end = 0, node, i, head;

    s->page[0] = s->page[1] = -1;
    for (node = c->first; node < c->first + c->n; node++) {
        end = specdec__max_int(end, c->place[node] / SPECDEC__KEYS + 1);
        first = specdec__min_int(first, window ? specdec__max_int(c->place[node] + 1 - window, 0) / SPECDEC__KEYS : 0);
    }
    for (i = 0; i < c->n; i++)
        for (head = u->from; head < u->to; head++) {
            size_t query = (size_t)i * (size_t)c->model->heads + (size_t)head;

            c->highest[query] = -3.0e38f;
            memset(c->total + query * 16, 0, 16 * sizeof *c->total);
            memset(c->attended + query * (size_t)c->kv.dim, 0, (size_t)c->kv.dim * sizeof *c->attended);
        }
    for (; first < end; first++)
        specdec__forward_block(c, s, u, first);
    for (i = 0; i < c->n; i++)
        for (head = u->from; head < u->to; head++) {
            size_t query = (size_t)i * (size_t)c->model->heads + (size_t)head;
            float *from = c->attended + query * (size_t)c->kv.dim;

            c->kernels->scale(from, 1.0f / c->kernels->total(c->total + query * 16), c->kv.dim);
            memcpy(c->h + (size_t)i * (size_t)c->q + (size_t)head * (size_t)size, from, (size_t)size * sizeof *from);
        }
}

/* Attention of a layer: units of (kv head, part of its query heads), as many parts as the threads need. */
static void specdec__forward_attention(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__model *m = c->model;
    int group = m->heads / m->kv_heads, parts = 1, from, end = 0;

    while (m->kv_heads * parts < specdec__pool_active(c->pool) && parts < group)
        do
            parts++;
        while (group % parts);
    while ((from = specdec__pool_claim(c->pool, m->kv_heads * parts, 1, &end)) < m->kv_heads * parts)
        for (; from < end; from++) {
            specdec__unit unit;

            unit.layer = layer;
            unit.head = from / parts;
            unit.from = unit.head * group + from % parts * (group / parts);
            unit.to = unit.from + group / parts;
            specdec__forward_attend(c, thread, &unit);
        }
}

/* --- the step ----------------------------------------------------------------------------------------------------- */

static specdec__output specdec__forward_output(const specdec__layer *layer, int matrix, int bias, float *out,
                                               int stride)
{
    specdec__output t;

    t.matrix = &layer->matrix[matrix];
    t.bias = bias >= 0 ? layer->vector[bias] : NULL;
    t.out = out;
    t.stride = (size_t)stride;
    return t;
}

static specdec__input specdec__forward_input(float *values, int n, int stride, const float *norm, const float *up)
{
    specdec__input in;

    in.values = values;
    in.n = n;
    in.stride = stride;
    in.norm = norm;
    in.rows = NULL;
    in.up = up;
    return in;
}

/* Quantises an input and multiplies matrices by it. Returns 1 when cancelled. */
static int specdec__forward_project(specdec__context *c, int thread, const specdec__input *in,
                                    const specdec__output *targets, int count)
{
    specdec__forward_quantise(c, thread, in);
    if (specdec__pool_barrier(c->pool))
        return 1;
    specdec__forward_multiply(c, thread, targets, count);
    return specdec__pool_barrier(c->pool);
}

/* x += attention of it. Returns 1 when cancelled. */
static int specdec__forward_attention_half(specdec__context *c, int thread, const specdec__layer *layer)
{
    specdec__input in = specdec__forward_input(c->h, c->n, c->e, layer->vector[SPECDEC__ATTENTION_NORM], NULL);
    const int items = c->n * c->model->kv_heads;
    specdec__output t[3];
    int from, end = 0;

    if (c->model->architecture->reads)
        in = specdec__forward_input(c->h, c->n, specdec__forward_stride(2 * c->model->embedding), NULL, NULL);

    t[0] = specdec__forward_output(layer, SPECDEC__Q, SPECDEC__Q_BIAS, c->queries, c->q);
    t[1] = specdec__forward_output(layer, SPECDEC__K, SPECDEC__K_BIAS, c->keys, c->kv_width);
    t[2] = specdec__forward_output(layer, SPECDEC__V, SPECDEC__V_BIAS, c->values, c->kv_width);
    if (specdec__forward_project(c, thread, &in, t, 3))
        return 1;
    while ((from = specdec__pool_claim(c->pool, items, 1, &end)) < items)
        for (; from < end; from++)
            specdec__forward_rotate(c, thread, layer, from / c->model->kv_heads, from % c->model->kv_heads);
    if (specdec__pool_barrier(c->pool))
        return 1;
    specdec__forward_attention(c, thread, layer);
    if (specdec__pool_barrier(c->pool))
        return 1;
    in = specdec__forward_input(c->h, c->n, c->q, NULL, NULL);
    t[0] = specdec__forward_output(layer, SPECDEC__O, SPECDEC__O_BIAS, c->y, c->e);
    if (specdec__forward_project(c, thread, &in, t, 1))
        return 1;
    specdec__forward_grow(c, thread, layer->vector[SPECDEC__AFTER_ATTENTION]);
    return specdec__pool_barrier(c->pool);
}

/* x += down(activation(gate x) * up x). Returns 1 when cancelled. */
static int specdec__forward_ffn_half(specdec__context *c, int thread, const specdec__layer *layer)
{
    specdec__input in = specdec__forward_input(c->h, c->n, c->e, layer->vector[SPECDEC__FFN_NORM], NULL);
    specdec__output t[2];

    t[0] = specdec__forward_output(layer, SPECDEC__GATE, -1, c->hidden, c->ff);
    t[1] = specdec__forward_output(layer, SPECDEC__UP, -1, c->y, c->ff);
    if (specdec__forward_project(c, thread, &in, t, 2))
        return 1;
    in = specdec__forward_input(c->hidden, c->n, c->ff, NULL, c->y);
    t[0] = specdec__forward_output(layer, SPECDEC__DOWN, -1, c->y, c->e);
    if (specdec__forward_project(c, thread, &in, t, 1))
        return 1;
    specdec__forward_grow(c, thread, layer->vector[SPECDEC__AFTER_FFN]);
    return specdec__pool_barrier(c->pool);
}

/* Hands out states after so many layers. */
static void specdec__forward_tap(const specdec__context *c, int thread, int layer)
{
    const specdec__model *m = c->model;
    const size_t width = (size_t)m->embedding;
    int k, i, j;

    for (k = 0; k < 2; k++) {
        const specdec__taps *taps = &c->taps[k];

        for (i = 0; taps->out && i < taps->count; i++)
            for (j = taps->first + thread; taps->layers[i] == layer && j < c->n; j += specdec__pool_active(c->pool)) {
                float *out = taps->out + ((size_t)(j - taps->first) * (size_t)taps->count + (size_t)i) * width;
                const float *x = c->x + (size_t)j * (size_t)c->e;

                if (layer == SPECDEC_STATE_FINAL)
                    c->kernels->norm(x, m->output_norm, m->epsilon, m->embedding, 0, m->embedding, out);
                else
                    memcpy(out, x, width * sizeof *out);
            }
    }
}

/* Row i of what the layer reads: the norm of the embedding, and behind it the norm of what came of states, in x. */
static void specdec__forward_beside(specdec__context *c, int i, const float *embedding)
{
    const specdec__model *m = c->model;
    const int width = m->embedding;
    const float *const *norm = m->layer[0].vector;
    float *x = c->x + (size_t)i * (size_t)c->e, *h = c->h + (size_t)i * (size_t)specdec__forward_stride(2 * width);

    c->kernels->norm(embedding, norm[SPECDEC__ATTENTION_NORM], m->epsilon, width, 0, width, h);
    c->kernels->norm(x, norm[SPECDEC__READ_NORM], m->epsilon, width, 0, width, h + width);
    if (m->reads.norm_first)
        memcpy(x, h + width, (size_t)width * sizeof *x);
}

/* Makes x of the states that a step reads. Returns 1 when cancelled. */
static int specdec__forward_read(specdec__context *c, int thread)
{
    specdec__input in = specdec__forward_input(c->reads, c->n, specdec__forward_read_stride(c->model), NULL, NULL);
    specdec__output t;

    t.matrix = &c->model->reads.matrix;
    t.bias = NULL;
    t.out = c->x;
    t.stride = (size_t)c->e;
    return specdec__forward_project(c, thread, &in, &t, 1);
}

/* A thread's share of the rows of the embedding and of the angles by which they are turned. */
static void specdec__forward_embed(specdec__context *c, int thread)
{
    const specdec__matrix *table = c->embedding;
    const int reads = SPECDEC__HEADS && c->model->architecture->reads, width = c->model->embedding;
    int i;

    for (i = thread; i < c->n; i += specdec__pool_active(c->pool)) {
        float *row = reads ? c->h + (size_t)i * (size_t)specdec__forward_stride(2 * width)
                           : c->x + (size_t)i * (size_t)c->e;

        specdec__quant_to_float(table->type, table->file + (size_t)c->batch->tokens[c->first + i] * table->row_bytes,
                                (size_t)width, row);
        c->kernels->scale(row, c->model->fact[SPECDEC__EMBEDDING_SCALE], width);
        if (reads)
            specdec__forward_beside(c, i, row);
        specdec__forward_angles(c, SPECDEC__ROPE, i);
        if (c->frequency[SPECDEC__ROPE_OTHER])
            specdec__forward_angles(c, SPECDEC__ROPE_OTHER, i);
    }
}

static void specdec__forward_worker(void *argument, int thread)
{
    specdec__context *c = (specdec__context *)argument;
    const specdec__model *m = c->model;
    specdec__input in = specdec__forward_input(c->h, c->row_count, c->e, m->output_norm, NULL);
    specdec__output t;
    int i;

    if (SPECDEC__HEADS && c->reads && specdec__forward_read(c, thread))
        return;
    specdec__forward_embed(c, thread);
    if (specdec__pool_barrier(c->pool))
        return;
    for (i = 0; i < m->layers; i++) {
        specdec__forward_tap(c, thread, i);
        if (specdec__forward_attention_half(c, thread, &m->layer[i]) ||
            specdec__forward_ffn_half(c, thread, &m->layer[i]))
            return;
    }
    specdec__forward_tap(c, thread, m->layers);
    specdec__forward_tap(c, thread, SPECDEC_STATE_FINAL);
    if (!c->row_count)
        return;
    t.matrix = c->output;
    t.bias = NULL;
    t.out = c->logits;
    t.stride = (size_t)c->output->rows;
    in.rows = c->rows;
    if (!specdec__forward_project(c, thread, &in, &t, 1) &&
        (m->fact[SPECDEC__LOGIT_DIVISOR] != 1 || m->fact[SPECDEC__LOGIT_CAP] > 0))
        specdec__forward_finish(c, thread);
}

/* Reserves slots for node i of a batch, and works out where it stands. Returns 0 when pages run out. */
static int specdec__forward_seat(specdec__context *c, const specdec__batch *batch, int i)
{
    specdec__view *view = batch->views[i];
    int parent = batch->parents[i], local = 0, previous = -1, span, j;

    for (j = 0; j < i; j++)
        if (batch->views[j] == view) {
            local++;
            previous = j;
        }
    if (!specdec__view_reserve(view, &c->kv, local + 1))
        return 0;
    for (span = 0; span < SPECDEC__SPANS; span++)
        if (c->kv.span[span].layers)
            c->slots[span][i] = specdec__view_reserved_slot(view, span, local);
    c->place[i] = parent < 0 ? view->length : c->place[parent] + 1;
    c->position[i] = c->place[i] - view->length + view->position;
    c->trunk[i] = parent == previous && (parent < 0 || c->trunk[parent]);
    return 1;
}

/* Checks a batch and works out positions, slots, trunk and rows. */
static specdec_result specdec__forward_prepare(specdec__context *c, const specdec__batch *batch, specdec_error *error)
{
    int i;

    if (batch->n - batch->done < 1 || batch->n > c->most)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a step of %d nodes, the engine was made for 1..%d",
                             batch->n, c->most);
    c->row_count = 0;
    for (i = batch->done; i < batch->n; i++) {
        const int parent = batch->parents[i];

        if (batch->tokens[i] < 0 || batch->tokens[i] >= c->model->vocab_size)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "token id %d, the vocabulary has %d",
                                 (int)batch->tokens[i], c->model->vocab_size);
        if (parent < -1 || parent >= i || (parent >= 0 && batch->views[parent] != batch->views[i]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "node %d has the parent %d", i, parent);
        if (!specdec__forward_seat(c, batch, i)) {
            specdec__view_unreserve(batch->views[i], &c->kv);
            return specdec__fail(error, SPECDEC_ERROR_CONTEXT, "no room in the KV cache for %d more tokens",
                                 batch->n);
        }
        if (batch->wanted == NULL || batch->wanted[i])
            c->rows[c->row_count++] = i - batch->done;
    }
    if (c->row_count > c->most_rows)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d rows of logits, the engine was made for %d",
                             c->row_count, c->most_rows);
    c->batch = batch;
    c->first = batch->done;
    c->n = batch->n - batch->done;
    c->turned.n = c->n * c->model->heads;
    return SPECDEC_OK;
}

/* Runs a batch: logits (wanted rows, vocab) lie in c->logits, states (wanted rows, c->e apart) in c->h, keys and values
   in reserved slots of the views, until they are committed or overwritten by the next step. */
static specdec_result specdec__forward(specdec__context *c, const specdec__batch *batch, specdec_error *error)
{
    specdec_result result = specdec__forward_prepare(c, batch, error);

    if (result)
        return result;
    if (specdec__pool_run(c->pool, c->threads, specdec__forward_worker, c))
        return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
    return SPECDEC_OK;
}

/* The first n nodes in the context's own arrays as a batch that wants every row. */
static specdec__batch specdec__forward_batch(const specdec__context *c, int done, int n)
{
    specdec__batch batch;

    batch.n = n;
    batch.done = done;
    batch.tokens = c->tokens;
    batch.parents = c->parents;
    batch.views = c->views;
    batch.wanted = NULL;
    return batch;
}

/* The same, all of one view. */
static specdec__batch specdec__forward_alone(const specdec__context *c, specdec__view *view, int done, int n)
{
    int i;

    for (i = 0; i < n; i++)
        c->views[i] = view;
    return specdec__forward_batch(c, done, n);
}

/* Which tokens of a text shall have their logits, and which their states; and what else a text brings along. */
typedef struct specdec__rows {
    int from;           /* this one and those behind it */
    float *logits;      /* (count - from, vocab), the caller's; NULL: only the last one is kept, as row 0 */
    int states_from;    /* this one and those behind it */
    specdec__taps taps; /* out (count - states_from, ...) is the caller's; NULL: none */
    float *reads;       /* (count - reads_from, stride): states that a model reads; NULL: it reads none */
    int reads_from;
    /* Told of each batch, tokens [at, at + n), before it is committed; its error ends the run. Or NULL */
    specdec_result (*hear)(void *listener, int at, int n);
    void *listener;
} specdec__rows;

/* Logits for token `from` and those behind it, of which the last becomes row 0; no states. */
static specdec__rows specdec__forward_wanted(int from)
{
    specdec__rows rows;

    memset(&rows, 0, sizeof rows);
    rows.from = from;
    return rows;
}

/* A batch will hold tokens [at, at + n) of a text: where their states go, and what it reads. */
static void specdec__forward_states(specdec__context *c, const specdec__rows *rows, int at, int n)
{
    const size_t width = (size_t)rows->taps.count * (size_t)c->model->embedding;
    const int skip = specdec__max_int(rows->states_from - at, 0);

    c->taps[0] = rows->taps;
    c->taps[0].first = skip;
    if (skip >= n)
        c->taps[0].out = NULL;
    else if (c->taps[0].out)
        c->taps[0].out += (size_t)(at + skip - rows->states_from) * width;
    if (rows->reads)
        c->reads = rows->reads + (size_t)(at - rows->reads_from) * (size_t)specdec__forward_read_stride(c->model);
}

/* Hands out the rows of a batch that holds tokens [at, at + n) of a text. */
static void specdec__forward_rows(specdec__context *c, const specdec__rows *rows, int at, int n)
{
    const size_t vocab = (size_t)c->output->rows;
    const int skip = specdec__max_int(rows->from - at, 0); /* rows come for wanted nodes, in order of nodes */

    if (skip >= n || !rows->logits)
        return;
    memcpy(rows->logits + (size_t)(at + skip - rows->from) * vocab, c->logits,
           (size_t)(n - skip) * vocab * sizeof *c->logits);
    memmove(c->logits, c->logits + (size_t)(n - skip - 1) * vocab, vocab * sizeof *c->logits);
}

/* Runs text[view length, count), most tokens a step, and commits them; the last row wanted becomes row 0 of c->logits.
   Tokens that the model lacks (the padding of a larger vocabulary) count as 0. hooks may be NULL. Errors also:
   CANCELLED. */
static specdec_result specdec__forward_text(specdec__context *c, specdec__view *view, const int32_t *text, int count,
                                            int most, const specdec__rows *rows, const specdec_hooks *hooks,
                                            specdec_error *error)
{
    const int from = view->length, total = count - from;

    while (view->length < count) {
        const int at = view->length, n = specdec__min_int(most, count - at);
        specdec__batch batch = specdec__forward_alone(c, view, 0, n);
        specdec_result result;
        int i;

        for (i = 0; i < n; i++) {
            c->tokens[i] = text[at + i] < c->model->vocab_size ? text[at + i] : 0;
            c->parents[i] = i - 1;
            c->wanted[i] = (unsigned char)(at + i >= rows->from);
            c->path[i] = i;
        }
        batch.wanted = c->wanted;
        specdec__forward_states(c, rows, at, n);
        result = specdec__forward(c, &batch, error);
        c->taps[0].out = NULL;
        c->reads = NULL;
        if (!result && rows->hear)
            result = rows->hear(rows->listener, at, n);
        if (result)
            return result;
        specdec__forward_rows(c, rows, at, n);
        specdec__view_commit(view, &c->kv, c->path, n);
        if (hooks && hooks->progress && total > 1 &&
            hooks->progress(hooks->user_data, "prefill", view->length - from, total))
            return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled by the progress hook");
    }
    return SPECDEC_OK;
}

/* =====================================================================================================================
 * >>heads (private): runs heads, which guess the next tokens from a state of the target, level by level.
 *     May call: >>base >>pool >>quant >>op >>model >>forward
 * ================================================================================================================== */

/* A file of heads with what a level of a tree needs. */
typedef struct specdec__heads {
    specdec__context context; /* of it, only what matrices need */
    int most;                 /* rows of a level, at most */
    float blend;              /* by how much a row of the table counts */
    float *input;             /* (most, stride of the wider): what a level reads */
    float *inner;             /* (most, stride of states): its states */
    float *table;             /* (threads, inner): a row of the table */
    float *ones;              /* (inner) */
    float *logits;            /* (most, output rows) */
    /* the level under way */
    int level, n;
    const int32_t *tokens;    /* (n): what came of the level before */
} specdec__heads;

SPECDEC__FOR_SIZE

/* Tokens that a row of logits is about: all heads have as many. */
static int specdec__heads_rows(const specdec__model *m) { return m->id_count ? m->id_count : m->vocab_size; }

static void specdec__heads_init(specdec__heads *h, const specdec__model *model, const specdec__context *target,
                                int threads, int most, specdec__arena *arena)
{
    specdec__context *c = &h->context;
    const int inner = model->feed_forward, widest = specdec__max_int(inner, model->embedding);
    const double s = specdec__exp_double(-0.34657359027997264 / model->guesses); /* 2^(-1 / 2n) */
    const double square = (1 - s * s) * inner / 2;
    int i;

    memset(h, 0, sizeof *h);
    c->model = model;
    c->kernels = target->kernels;
    c->pool = target->pool;
    c->threads = threads;
    c->scratch = target->scratch;
    specdec__columns_take(&c->columns, (size_t)most, (size_t)specdec__forward_stride(widest), arena);
    h->most = most;
    h->blend = (float)(square * specdec__inverse_root(square) / s);
    h->input = SPECDEC__TAKE(arena, float, (size_t)most * (size_t)specdec__forward_stride(widest));
    h->inner = SPECDEC__TAKE(arena, float, (size_t)most * (size_t)specdec__forward_stride(inner));
    h->table = SPECDEC__TAKE(arena, float, (size_t)threads * (size_t)inner);
    h->ones = SPECDEC__TAKE(arena, float, inner);
    h->logits = SPECDEC__TAKE(arena, float, specdec__size_multiply((size_t)most,
                                                              (size_t)specdec__heads_rows(model)));
    for (i = 0; h->ones && i < inner; i++)
        h->ones[i] = 1;
}

/* The width of what a level reads. */
static int specdec__heads_width(const specdec__model *m, int level)
{
    return level && m->speculator->follow ? m->feed_forward : m->embedding;
}

/* A thread's rows of products become states. */
static void specdec__heads_states(specdec__heads *h, int thread)
{
    const specdec__context *c = &h->context;
    const specdec__model *m = c->model;
    const specdec__layer *l = &m->layer[m->tied ? 0 : h->level];
    const int inner = m->feed_forward, width = specdec__heads_width(m, h->level);
    float *row = h->table + (size_t)thread * (size_t)inner;
    int i;

    for (i = thread; i < h->n; i += specdec__pool_active(c->pool)) {
        float *z = h->inner + (size_t)i * (size_t)specdec__forward_stride(inner);

        if (m->speculator->table) {
            specdec__quant_to_float(l->table.type, l->table.file + (size_t)h->tokens[i] * l->table.row_bytes,
                                    (size_t)inner, row);
            c->kernels->add_scaled(z, h->blend, row, inner);
        }
        if (m->speculator->norm)
            c->kernels->norm(z, l->vector[SPECDEC__HEAD_NORM], m->epsilon, inner, 0, inner, z);
        c->kernels->add_scaled(z, 1, l->vector[SPECDEC__HEAD_BIAS], inner);
        c->kernels->activate[m->speculator->activation](z, h->ones, inner);
        if (m->speculator->adds)
            c->kernels->add_scaled(z, 1, h->input + (size_t)i * (size_t)specdec__forward_stride(width), inner);
    }
}

static void specdec__heads_worker(void *argument, int thread)
{
    specdec__heads *h = (specdec__heads *)argument;
    specdec__context *c = &h->context;
    const specdec__model *m = c->model;
    const specdec__layer *own = &m->layer[specdec__min_int(h->level, m->layers - 1)];
    const int stride = specdec__forward_stride(m->feed_forward);
    specdec__input in = specdec__forward_input(
        h->input, h->n, specdec__forward_stride(specdec__heads_width(m, h->level)), NULL, NULL);
    specdec__output t;

    t.matrix = &own->matrix[SPECDEC__HEAD_INPUT];
    t.bias = NULL;
    t.out = h->inner;
    t.stride = (size_t)stride;
    if (specdec__forward_project(c, thread, &in, &t, 1))
        return;
    specdec__heads_states(h, thread);
    if (specdec__pool_barrier(c->pool))
        return;
    in = specdec__forward_input(h->inner, h->n, stride, NULL, NULL);
    t.matrix = &m->layer[m->tied ? 0 : h->level].matrix[SPECDEC__HEAD_OUTPUT];
    t.out = h->logits;
    t.stride = (size_t)specdec__heads_rows(m);
    specdec__forward_project(c, thread, &in, &t, 1);
}

SPECDEC__FOR_SPEED

/* Runs head number `level` on n rows of h->input behind these tokens: states lie in h->inner, logits in h->logits. The
   input of level 0 is normed first where heads want that. */
static specdec_result specdec__heads_run(specdec__heads *h, int level, const int32_t *tokens, int n,
                                         specdec_error *error)
{
    const specdec__context *c = &h->context;
    const specdec__model *m = c->model;
    int i;

    h->level = level;
    h->tokens = tokens;
    h->n = n;
    for (i = 0; i < n && m->input_norm && !level; i++) {
        float *x = h->input + (size_t)i * (size_t)specdec__forward_stride(m->embedding);

        c->kernels->norm(x, m->input_norm, m->epsilon, m->embedding, 0, m->embedding, x);
    }
    if (specdec__pool_run(c->pool, c->threads, specdec__heads_worker, h))
        return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
    return SPECDEC_OK;
}

/* =====================================================================================================================
 * >>sample (private): a row of logits becomes a set of candidates, the candidates become tokens or a distribution;
 * noise that is a function of (seed, position, token). May call: >>base >>kernel >>op
 * ================================================================================================================== */

#define SPECDEC__SAMPLE_WINDOW     64 /* repetition_window when the caller leaves it 0 */
#define SPECDEC__SAMPLE_NUCLEUS    64 /* candidates sorted first when looking for a top-p set; then 8 times more */
#define SPECDEC__SAMPLE_GUMBEL_MAX 22.1808f       /* no Gumbel value is larger: 32 ln 2 and some rounding */
#define SPECDEC__SAMPLE_LARGEST    3.40282347e38f /* the largest float */

/* What seed and position contribute to the noise; the same for every token of a row. */
SPECDEC__INLINE uint64_t specdec__sample_noise_row(uint64_t seed, uint64_t position)
{
    uint64_t key = specdec__mix(seed + 0x9e3779b97f4a7c15u);

    return specdec__mix(key ^ specdec__mix(position * 0xd1342543de82ef95u + 0x632be59bd9b4e019u));
}

/* 32 random bits, the same on every machine. Token ids are below 2^31; the upper half serves uniform numbers. */
static SPECDEC__UNUSED uint32_t specdec__noise(uint64_t seed, uint64_t position, uint32_t token)
{
    return (uint32_t)(specdec__noise_at(specdec__sample_noise_row(seed, position), token) >> 32);
}

/* -log(-log(u)) with u = (bits + 1) / (2^32 + 1): in [-3.1, SPECDEC__SAMPLE_GUMBEL_MAX]. Works on 1 - u near 1. */
static float specdec__sample_gumbel_from(uint32_t bits)
{
    const float unit = 2.32830644e-10f; /* 2^-32 */
    float u, complement, wait;

    if (bits < 0x80000000u)
        return -specdec__log(-specdec__log((float)(bits + 1) * unit));
    complement = (float)(~bits + 1) * unit;
    u = 1.0f - complement;
    wait = u < 1.0f ? -specdec__log(u) * (complement / (1.0f - u)) : complement;
    return -specdec__log(wait);
}

/* Noise with the standard Gumbel distribution, for one token. */
static SPECDEC__UNUSED float specdec__gumbel(uint64_t seed, uint64_t position, uint32_t token)
{
    return specdec__sample_gumbel_from(specdec__noise(seed, position, token));
}

double specdec_uniform_next(specdec_uniform *source)
{
    uint64_t row = specdec__sample_noise_row(source->seed, source->position);
    uint64_t bits = specdec__noise_at(row, 0x80000000u | source->decision++);

    return ((double)(bits >> 12) + 0.5) * (1.0 / 4503599627370496.0); /* 2^52 */
}

/* Order of candidates: the higher logit first, then the lower token. */
SPECDEC__INLINE int specdec__sample_before(specdec_candidate a, specdec_candidate b)
{
    return a.logit > b.logit || (!(a.logit < b.logit) && a.token < b.token);
}

#define SPECDEC__SAMPLE_ORDER(key, a, b) specdec__sample_before(a, b)
SPECDEC__HEAP(specdec__sample_sink, specdec_candidate, void, SPECDEC__SAMPLE_ORDER)

/* Brings the best k of count items to the front, sorted; 0 < k <= count. O(count) for small k. */
static void specdec__sample_select(specdec_candidate *items, int count, int k)
{
    specdec_candidate moving;
    int i;

    for (i = k / 2 - 1; i >= 0; i--)
        specdec__sample_sink(items, NULL, k, i);
    for (i = k; i < count; i++) {
        if (specdec__sample_before(items[i], items[0])) {
            moving = items[i];
            items[i] = items[0];
            items[0] = moving;
            specdec__sample_sink(items, NULL, k, 0);
        }
    }
    for (i = k - 1; i > 0; i--) {
        moving = items[i];
        items[i] = items[0];
        items[0] = moving;
        specdec__sample_sink(items, NULL, i, 0);
    }
}

/* A logit that can be compared: NaN becomes -infinity, +infinity the largest float. */
SPECDEC__INLINE float specdec__sample_clean(float logit)
{
    if (!(logit >= -SPECDEC__SAMPLE_LARGEST))
        return specdec__float_from_bits(0xff800000u);
    return logit > SPECDEC__SAMPLE_LARGEST ? SPECDEC__SAMPLE_LARGEST : logit;
}

/* Does the penalty change anything? */
SPECDEC__INLINE int specdec__sample_penalises(const specdec_sampling *sampling)
{
    return sampling->repetition_penalty > 0.0f && (sampling->repetition_penalty < 1.0f ||
                                                   sampling->repetition_penalty > 1.0f);
}

/* Do the penalty or biases change logits? */
SPECDEC__INLINE int specdec__sample_alters(const specdec_sampling *sampling)
{
    return sampling->bias_count > 0 || specdec__sample_penalises(sampling);
}

static specdec_result specdec__sample_check_biases(const specdec_sampling *sampling, specdec_error *error)
{
    int i;

    if (sampling->bias_count < 0 || (sampling->bias_count && !sampling->biases))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d biases, or none where they should be",
                             sampling->bias_count);
    for (i = 0; i < sampling->bias_count; i++)
        if (!(sampling->biases[i].bias <= 0.0f) && !(sampling->biases[i].bias > 0.0f))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the bias of token %d is not a number",
                                 (int)sampling->biases[i].token);
    return SPECDEC_OK;
}

static specdec_result specdec__sample_check(const specdec_sampling *sampling, specdec_error *error)
{
    if (!(sampling->temperature >= 0.0f && sampling->temperature <= 1e6f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "temperature must be 0 (greedy) or a number up to 1000000");
    if (sampling->top_k < 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "top_k is %d; it must be 0 (off) or more",
                             (int)sampling->top_k);
    if (!(sampling->top_p >= 0.0f && sampling->top_p <= 1.0f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "top_p must be within 0 (off) and 1 (off)");
    if (!(sampling->min_p >= 0.0f && sampling->min_p <= 1.0f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "min_p must be within 0 (off) and 1");
    if (!(sampling->repetition_penalty >= 0.0f && sampling->repetition_penalty <= 1e6f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "repetition_penalty must be 0 or 1 (off) or a number up to 1000000");
    if (sampling->repetition_window < -1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "repetition_window is %d; it must be -1 (all), 0 (%d) or more",
                             (int)sampling->repetition_window, SPECDEC__SAMPLE_WINDOW);
    return specdec__sample_check_biases(sampling, error);
}

/* The logit of a token of a row, with its biases: they are few. */
static float specdec__sample_biased(const specdec_sampling *sampling, const float *logits, int32_t token)
{
    float logit = specdec__sample_clean(logits[token]);
    int i;

    for (i = 0; i < sampling->bias_count; i++)
        if (sampling->biases[i].token == token)
            logit = specdec__sample_clean(logit + sampling->biases[i].bias);
    return logit;
}

/* Copies the row into items[vocab], items[i] being token i, adds biases and makes tokens of the window less likely. */
static void specdec__sample_alter(specdec_candidate *items, const specdec_sampling *sampling, const float *logits,
                                  int vocab, const int32_t *recent, int recent_count)
{
    int window = sampling->repetition_window ? sampling->repetition_window : SPECDEC__SAMPLE_WINDOW;
    float penalty = sampling->repetition_penalty;
    int i;

    for (i = 0; i < vocab; i++) {
        items[i].token = i;
        items[i].logit = specdec__sample_clean(logits[i]);
    }
    for (i = 0; i < sampling->bias_count; i++) {
        const int32_t token = sampling->biases[i].token;

        if (token >= 0 && token < vocab)
            items[token].logit = specdec__sample_clean(items[token].logit + sampling->biases[i].bias);
    }
    if (!specdec__sample_penalises(sampling))
        return;
    for (i = window < 0 ? 0 : specdec__max_int(recent_count - window, 0); i < recent_count; i++) {
        int32_t token = recent[i];

        if (token >= 0 && token < vocab) {
            float logit = specdec__sample_biased(sampling, logits, token); /* afresh, so that repeats count once */

            items[token].logit = specdec__sample_clean(logit > 0.0f ? logit / penalty : logit * penalty);
        }
    }
}

/* Drops candidates of probability zero and shifts the rest so that the best logit is 0. Returns how many stay, >= 1. */
static int specdec__sample_shift(specdec_candidate *items, int vocab)
{
    float best = specdec__float_from_bits(0xff800000u);
    int i, count = 0;

    for (i = 0; i < vocab; i++)
        best = items[i].logit > best ? items[i].logit : best;
    for (i = 0; i < vocab; i++) {
        float logit = items[i].logit - best;

        if (logit >= -SPECDEC__SAMPLE_LARGEST) {
            items[count].token = items[i].token;
            items[count++].logit = logit;
        }
    }
    if (count == 0) {
        items[0].token = 0; /* nothing in the row is a number above -infinity */
        items[0].logit = 0.0f;
        count = 1;
    }
    return count;
}

/* Keeps the fewest best candidates that hold top_p of the probability; leaves them sorted. Returns how many. */
static int specdec__sample_nucleus(specdec_candidate *items, int count, float top_p, int sorted)
{
    int i = 0, ready = sorted ? count : specdec__min_int(SPECDEC__SAMPLE_NUCLEUS, count);
    double total = 0.0, reached = 0.0;

    for (i = 0; i < count; i++)
        total += (double)specdec__exp(items[i].logit);
    total *= (double)top_p;
    if (!sorted)
        specdec__sample_select(items, count, ready);
    for (i = 0;; ready = ready > count / 8 ? count : ready * 8) {
        for (; i < ready; i++) {
            reached += (double)specdec__exp(items[i].logit);
            if (reached >= total)
                return i + 1;
        }
        if (ready == count)
            return count;
        specdec__sample_select(items + ready, count - ready,
                               specdec__min_int(ready > count / 8 ? count : ready * 7, count - ready));
    }
}

specdec_result specdec_sample_filter(specdec_candidates *out, const specdec_sampling *sampling, const float *logits,
                                     int vocab, const int32_t *recent, int recent_count, specdec_error *error)
{
    specdec_candidate *items = out ? out->items : NULL;
    int i, count, kept, sorted = 0;
    specdec_result result;

    if (!items || !sampling || !logits || vocab < 1 || recent_count < 0 || (recent_count && !recent))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "sampling needs candidates, settings and a row of at least one logit");
    result = specdec__sample_check(sampling, error);
    if (result)
        return result;
    specdec__sample_alter(items, sampling, logits, vocab, recent, recent_count);
    count = specdec__sample_shift(items, vocab);
    out->greedy = !(sampling->temperature > 0.0f);
    out->count = count;
    if (out->greedy)
        return SPECDEC_OK;
    if (sampling->top_k > 0 && sampling->top_k < count) {
        count = sampling->top_k;
        specdec__sample_select(items, out->count, count);
        sorted = 1;
    }
    if (sampling->top_p > 0.0f && sampling->top_p < 1.0f)
        count = specdec__sample_nucleus(items, count, sampling->top_p, sorted);
    if (sampling->min_p > 0.0f) {
        float least = specdec__log(sampling->min_p);

        for (i = 0, kept = 0; i < count; i++)
            if (items[i].logit >= least)
                items[kept++] = items[i];
        count = kept;
    }
    for (i = 0; i < count; i++)
        items[i].logit = items[i].logit / sampling->temperature;
    out->count = count;
    return SPECDEC_OK;
}

/* Puts a candidate into the sorted list best[held] of at most k; when the list is full, its last one falls out. Returns
   how many are held. */
static int specdec__sample_insert(specdec_candidate *best, int held, int k, specdec_candidate candidate)
{
    int at = held < k ? held : k - 1;

    if (held == k && !specdec__sample_before(candidate, best[k - 1]))
        return held;
    for (; at > 0 && specdec__sample_before(candidate, best[at - 1]); at--)
        best[at] = best[at - 1];
    best[at] = candidate;
    return held < k ? held + 1 : held;
}

/* The most noise that these bits can give: ln 2 (rounded up to 710/1024, so that the product is exact) for each leading
   one and one more. */
SPECDEC__INLINE float specdec__sample_gumbel_limit(uint32_t bits)
{
    return (float)((__builtin_clz(~bits | 1u) + 1) * 710) * 0.0009765625f;
}

/* Adds Gumbel noise to a candidate and puts it into the list of the k best. A candidate is passed over only when no
   noise, or none that its leading random bits allow, could lift it to the k-th best: so the result is exact. Returns
   how many are held. */
static int specdec__sample_try(specdec_candidate *best, int held, int k, specdec_candidate candidate, uint64_t row)
{
    float worst = held == k ? best[k - 1].logit : specdec__float_from_bits(0xff800000u);
    uint32_t bits;

    if (candidate.logit + SPECDEC__SAMPLE_GUMBEL_MAX < worst)
        return held;
    bits = (uint32_t)(specdec__noise_at(row, (uint32_t)candidate.token) >> 32);
    if (candidate.logit + specdec__sample_gumbel_limit(bits) < worst)
        return held;
    candidate.logit = candidate.logit + specdec__sample_gumbel_from(bits);
    return specdec__sample_insert(best, held, k, candidate);
}

int specdec_sample_top(const specdec_candidates *candidates, uint64_t seed, uint64_t position, int k,
                       specdec_candidate *best)
{
    uint64_t row = specdec__sample_noise_row(seed, position);
    int i, held = 0;

    if (!candidates || !best || k < 1)
        return 0;
    for (i = 0; i < candidates->count && !candidates->greedy; i++)
        held = specdec__sample_try(best, held, k, candidates->items[i], row);
    for (i = 0; i < candidates->count && candidates->greedy; i++)
        if (held < k || candidates->items[i].logit >= best[k - 1].logit)
            held = specdec__sample_insert(best, held, k, candidates->items[i]);
    return held;
}

/* The one token that (seed, position) chooses among the candidates; with greedy candidates the best one. */
static SPECDEC__UNUSED int32_t specdec__sample_coupled(const specdec_candidates *candidates, uint64_t seed,
                                                       uint64_t position)
{
    specdec_candidate best;

    best.token = 0;
    specdec_sample_top(candidates, seed, position, 1, &best);
    return best.token;
}

/* The k best tokens of a row, best first, without scratch: what a filter at temperature 0 and no penalty would give,
   but for the shift of the logits. Runs of tokens of which none can be among them are passed over. Returns how many. */
static SPECDEC__UNUSED int specdec__sample_greedy(const specdec__kernels *kernels, const float *logits, int vocab,
                                                  int k,
                                                  specdec_candidate *best)
{
    int i = 0, held = 0, end;

    for (; i < vocab && k > 0; i = end) {
        end = specdec__min_int(i + 256, vocab);
        if (held == k && !(kernels->largest(logits + i, end - i) > best[k - 1].logit))
            continue;
        for (; i < end; i++) {
            specdec_candidate candidate;

            if (held == k && !(logits[i] > best[k - 1].logit))
                continue;
            candidate.token = i;
            candidate.logit = specdec__sample_clean(logits[i]);
            held = specdec__sample_insert(best, held, k, candidate);
        }
    }
    return held;
}

/* A row of logits that is sampled from: as a list of candidates, or, when nothing is cut off or penalised, as it is. */
typedef struct specdec__row {
    const specdec__kernels *kernels;
    const float *logits; /* (vocab) */
    int vocab;
    float highest;                /* of the logits */
    float temperature;            /* 0: there is a list */
    specdec_candidates candidates;
} specdec__row;

/* items (vocab) is room for the list. recent (recent_count) is the text before the row. */
static specdec_result specdec__row_init(specdec__row *row, const specdec__kernels *kernels, const specdec_sampling *s,
                                        specdec_candidate *items, const float *logits, int vocab, const int32_t *recent,
                                        int recent_count)
{
    row->kernels = kernels;
    row->logits = logits;
    row->vocab = vocab;
    row->temperature = 0;
    row->candidates.items = items;
    if (s->temperature > 1e-6f && !(s->top_k > 0 && s->top_k < vocab) && !(s->top_p > 0 && s->top_p < 1) &&
        !(s->min_p > 0) &&
        !specdec__sample_alters(s)) {
        row->highest = kernels->largest(logits, vocab);
        if (row->highest >= -SPECDEC__SAMPLE_LARGEST && row->highest <= SPECDEC__SAMPLE_LARGEST) {
            row->temperature = s->temperature;
            return SPECDEC_OK;
        }
    }
    return specdec_sample_filter(&row->candidates, s, logits, vocab, recent, recent_count, NULL);
}

/* What specdec_sample_top gives, in blocks of 64 tokens: most blocks hold no token that could be chosen. */
static int specdec__row_top(const specdec__row *row, uint64_t seed, uint64_t position, int k, specdec_candidate *best)
{
    uint64_t noise_row = specdec__sample_noise_row(seed, position);
    int from, i, held = 0;

    if (!(row->temperature > 0))
        return specdec_sample_top(&row->candidates, seed, position, k, best);
    for (from = 0; from < row->vocab && k > 0; from += 64) {
        int count = specdec__min_int(64, row->vocab - from);

        if (held == k &&
            !row->kernels->hopefuls(row->logits + from, count, row->highest, 1.0f / row->temperature,
                                    best[k - 1].logit, noise_row, (uint32_t)from))
            continue;
        for (i = from; i < from + count; i++) {
            specdec_candidate candidate;

            candidate.token = i;
            candidate.logit = row->logits[i] - row->highest;
            if (!(candidate.logit >= -SPECDEC__SAMPLE_LARGEST))
                continue;
            candidate.logit = candidate.logit / row->temperature;
            held = specdec__sample_try(best, held, k, candidate, noise_row);
        }
    }
    return held;
}

specdec_result specdec_sample_distribution(const specdec_candidates *candidates, int vocab, float *p,
                                           specdec_error *error)
{
    double total = 0.0;
    int i;

    if (!candidates || !candidates->items || candidates->count < 1 || !p || vocab < 1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "a distribution needs candidates and room for at least one token");
    for (i = 0; i < candidates->count; i++)
        if (candidates->items[i].token < 0 || candidates->items[i].token >= vocab)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "token %d is not in the vocabulary of %u",
                                 (int)candidates->items[i].token, (unsigned)vocab);
    memset(p, 0, (size_t)vocab * sizeof *p);
    if (candidates->greedy) {
        p[specdec__sample_coupled(candidates, 0, 0)] = 1.0f;
        return SPECDEC_OK;
    }
    for (i = 0; i < candidates->count; i++) {
        float weight = specdec__exp(candidates->items[i].logit);

        p[candidates->items[i].token] = weight;
        total += (double)weight;
    }
    for (i = 0; i < candidates->count; i++)
        p[candidates->items[i].token] = (float)((double)p[candidates->items[i].token] / total);
    return SPECDEC_OK;
}

/* What specdec_sample_distribution gives, but for the sum of p (vocab), which need not be 1. */
static void specdec__row_weights(const specdec__row *row, float *p)
{
    if (row->temperature > 0)
        row->kernels->weights(row->logits, row->vocab, row->highest, row->temperature, p);
    else
        specdec_sample_distribution(&row->candidates, row->vocab, p, NULL);
}

/* =====================================================================================================================
 * >>tree (private): token trees as arrays: shapes, scores, the best tree for an acceptance vector, growth from live
 * probabilities, the default family. May call: >>base
 * ================================================================================================================== */

SPECDEC__FOR_SIZE

#define SPECDEC__MAX_TREE  64       /* nodes of the engine's trees */
#define SPECDEC__OFFERS    8        /* candidates behind a node while a tree grows */
#define SPECDEC__TREE_NONE (-1e300) /* the score of a tree that does not exist */
#define SPECDEC__TREE_TIE  1e-12    /* the relative gain below which two scores count as equal */

/* Node i becomes a child of parent, one rank after its last sibling; parents come first, siblings in order of rank. */
SPECDEC__INLINE void specdec__tree_put(specdec_tree *tree, int i, int parent, int rank)
{
    tree->parents[i] = parent;
    tree->ranks[i] = rank;
}

/* The first child of a node at or behind place i, or n where there is none. All children of a node, in order of rank:
   for (i = specdec__tree_child(tree, node, node + 1); i < tree->n; i = specdec__tree_child(tree, node, i + 1)) */
SPECDEC__INLINE int specdec__tree_child(const specdec_tree *tree, int node, int i)
{
    while (i < tree->n && tree->parents[i] != node)
        i++;
    return i;
}

/* The rank of a child of parent that comes right behind the first i nodes: one more than its last sibling's. */
SPECDEC__INLINE int specdec__tree_rank(const specdec_tree *tree, int i, int parent)
{
    int sibling = i - 1;

    while (sibling > 0 && tree->parents[sibling] != parent)
        sibling--;
    return sibling > 0 ? tree->ranks[sibling] + 1 : 1;
}

/* Checks that there is room for n nodes, and sets tree->n; when there is not, too: SPECDEC_ERROR_BUFFER and the needed
   count. */
static specdec_result specdec__tree_reserve(specdec_tree *tree, size_t n, specdec_error *error)
{
    if (!tree || !tree->parents || !tree->ranks)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a tree needs its arrays of parents and ranks");
    if (n < 1 || n > SPECDEC_TREE_MAX_NODES)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a tree of %zu nodes; it has 1 to %d", n,
                             SPECDEC_TREE_MAX_NODES);
    tree->n = (int)n;
    if (tree->capacity < (int)n)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "the tree needs %zu nodes, its arrays hold %d", n,
                             tree->capacity);
    return SPECDEC_OK;
}

specdec_result specdec_tree_check(const specdec_tree *tree, specdec_error *error)
{
    int i;

    if (!tree || !tree->parents || !tree->ranks)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a tree needs its arrays of parents and ranks");
    if (tree->n < 1 || tree->n > SPECDEC_TREE_MAX_NODES || tree->n > tree->capacity)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "the tree has %d nodes; allowed are 1 to %d, its arrays hold %d", tree->n,
                             SPECDEC_TREE_MAX_NODES, tree->capacity);
    if (tree->parents[0] != -1 || tree->ranks[0] != 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "node 0 is the root: its parent must be -1 and its rank 0");
    for (i = 1; i < tree->n; i++) {
        if (tree->parents[i] < 0 || tree->parents[i] >= i)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "the parent of node %d is %d; it must be a node before it", i, (int)tree->parents[i]);
        if (tree->ranks[i] != specdec__tree_rank(tree, i, tree->parents[i]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "the rank of node %d is %d; siblings must count 1, 2, ... in order", i,
                                 (int)tree->ranks[i]);
    }
    return SPECDEC_OK;
}

int specdec_tree_depth(const specdec_tree *tree, int32_t *depths)
{
    int i, d = 0;

    for (i = 0; i < tree->n; i++) {
        int at, depth = 0;

        for (at = i; tree->parents[at] >= 0; at = tree->parents[at])
            depth++;
        if (depths)
            depths[i] = depth;
        d = specdec__max_int(d, depth + 1);
    }
    return d;
}

specdec_result specdec_tree_chains(specdec_tree *tree, int chains, int length, specdec_error *error)
{
    size_t n = specdec__size_add(
        1, specdec__size_multiply((size_t)specdec__max_int(chains, 0), (size_t)specdec__max_int(length, 0)));
    specdec_result result;
    int i;

    if (chains < 0 || length < 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d chains of %d nodes: both must be 0 or more", chains,
                             length);
    result = specdec__tree_reserve(tree, n, error);
    if (result)
        return result;
    specdec__tree_put(tree, 0, -1, 0);
    for (i = 1; i < tree->n; i++)
        specdec__tree_put(tree, i, i <= chains ? 0 : i - chains, i <= chains ? i : 1);
    return SPECDEC_OK;
}

specdec_result specdec_tree_full(specdec_tree *tree, int k, int d, specdec_error *error)
{
    size_t n = 1, level = 1;
    specdec_result result;
    int i;

    if (k < 1 || d < 1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "a full tree needs at least 1 child a node and 1 level, not %d and %d", k, d);
    for (i = 1; i < d && n <= SPECDEC_TREE_MAX_NODES; i++) {
        level = specdec__size_multiply(level, (size_t)k);
        n = specdec__size_add(n, level);
    }
    result = specdec__tree_reserve(tree, n, error);
    if (result)
        return result;
    specdec__tree_put(tree, 0, -1, 0);
    for (i = 1; i < tree->n; i++)
        specdec__tree_put(tree, i, (i - 1) / k, (i - 1) % k + 1);
    return SPECDEC_OK;
}

/* Is p[width] an acceptance vector? */
static specdec_result specdec__tree_check_acceptance(const double *p, int width, specdec_error *error)
{
    double sum = 0.0;
    int k;

    if (!p || width < 1 || width > SPECDEC_TREE_MAX_WIDTH)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an acceptance vector of %d entries; it has 1 to %d",
                             p ? width : 0, SPECDEC_TREE_MAX_WIDTH);
    for (k = 0; k < width; k++) {
        if (!(p[k] >= 0.0 && p[k] <= 1.0 + 1e-6))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "entry %d of the acceptance vector is not within 0 and 1", k + 1);
        sum += p[k];
    }
    if (sum > 1.0 + 1e-6)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the acceptance vector sums to more than 1");
    return SPECDEC_OK;
}

specdec_result specdec_tree_score(double *score, const specdec_tree *tree, const double *p, int width,
                                  specdec_error *error)
{
    specdec_result result = specdec_tree_check(tree, error);
    int i, at;

    if (!result)
        result = specdec__tree_check_acceptance(p, width, error);
    if (result)
        return result;
    for (*score = 0.0, i = 0; i < tree->n; i++) {
        double f = 1.0;

        for (at = i; at > 0 && f > 0.0; at = tree->parents[at])
            f *= tree->ranks[at] <= width ? p[tree->ranks[at] - 1] : 0.0;
        *score += f;
    }
    return SPECDEC_OK;
}

/* The dynamic programme's tables. A row has a place for every subtree size, 0..n. */
typedef struct specdec__tree_tables {
    const double *p;
    int width, n, d;
    size_t stride;   /* n + 1 */
    double *best;    /* [d + 1][stride]: the best score of a tree with m nodes and at most l levels */
    double *rows;    /* [width + 1][stride]: for one l: the same, with exactly b children of the root */
    double *weights; /* [stride]: what a b-th child with a subtree of j nodes adds */
    int32_t *sizes;  /* [n]: nodes below and including each node of the tree being written */
} specdec__tree_tables;

static specdec_result specdec__tree_lay_out(specdec__tree_tables *tables, specdec__arena *arena)
{
    tables->stride = (size_t)tables->n + 1;
    tables->best = SPECDEC__TAKE(arena, double, ((size_t)tables->d + 1) * tables->stride);
    tables->rows = SPECDEC__TAKE(arena, double, ((size_t)tables->width + 1) * tables->stride);
    tables->weights = SPECDEC__TAKE(arena, double, tables->stride);
    tables->sizes = SPECDEC__TAKE(arena, int32_t, tables->n);
    return arena->used == SIZE_MAX ? SPECDEC_ERROR_MEMORY : SPECDEC_OK;
}

size_t specdec_tree_memory(int n, int d, int width)
{
    specdec__tree_tables tables;
    specdec__arena arena;

    if (n < 1 || n > SPECDEC_TREE_MAX_NODES || d < 1 || d > SPECDEC_TREE_MAX_DEPTH || width < 1 ||
        width > SPECDEC_TREE_MAX_WIDTH)
        return 0;
    memset(&arena, 0, sizeof arena);
    tables.n = n;
    tables.d = d;
    tables.width = width;
    specdec__tree_lay_out(&tables, &arena);
    return arena.used + sizeof(double) - 1;
}

/* Fills weights[1..]: p times the best score of j nodes in l - 1 levels. Returns the largest j that exists, at most
   most. */
static int specdec__tree_weigh(double *weights, const double *below, double p, int most)
{
    int j;

    for (j = 1; j <= most && below[j] > 0.0; j++)
        weights[j] = p * below[j];
    return j - 1;
}

/* Fills rows[b][m] for m <= most, where the children's subtrees score below[]:
   T[m][l][b] = max_y T[y][l][b-1] + p_b * best[m-y][l-1] (Chen et al. 2024, arXiv 2402.12374, section 4.1). */
static void specdec__tree_fill_rows(const specdec__tree_tables *tables, const double *below, int most)
{
    int b, m, y, j;

    for (m = 0; m <= most; m++)
        tables->rows[m] = m == 1 ? 1.0 : SPECDEC__TREE_NONE;
    for (b = 1; b <= tables->width; b++) {
        const double *before = tables->rows + (size_t)(b - 1) * tables->stride;
        double *row = tables->rows + (size_t)b * tables->stride;
        int largest = specdec__tree_weigh(tables->weights, below, tables->p[b - 1], most - 1);

        for (m = 0; m <= most; m++)
            row[m] = SPECDEC__TREE_NONE;
        for (y = b; y < most; y++) {
            const double *weights = tables->weights;
            double *out = row + y, base = before[y];
            int last = specdec__min_int(largest, most - y);

            if (base < 0.0)
                continue;
            for (j = 1; j <= last; j++) {
                double score = base + weights[j];
                out[j] = score > out[j] ? score : out[j];
            }
        }
    }
}

/* Fills best[l][m] for every l <= d and m <= n. */
static void specdec__tree_fill(const specdec__tree_tables *tables)
{
    int b, l, m;

    for (m = 0; m <= tables->n; m++)
        tables->best[m] = SPECDEC__TREE_NONE;
    for (l = 1; l <= tables->d; l++) {
        double *best = tables->best + (size_t)l * tables->stride;

        specdec__tree_fill_rows(tables, best - tables->stride, tables->n);
        memcpy(best, tables->rows, tables->stride * sizeof *best);
        for (b = 1; b <= tables->width; b++) {
            const double *row = tables->rows + (size_t)b * tables->stride;

            for (m = 1; m <= tables->n; m++)
                best[m] = row[m] > best[m] ? row[m] : best[m];
        }
    }
}

/* Checks the arguments, lays out the tables in memory and fills them. */
static specdec_result specdec__tree_solve(specdec__tree_tables *tables, const double *p, int width, int n, int d,
                                          void *memory, size_t bytes, specdec_error *error)
{
    specdec_result result = specdec__tree_check_acceptance(p, width, error);
    size_t needed = specdec_tree_memory(n, d, width), skip = (size_t)(0u - (uintptr_t)memory) % sizeof(double);
    specdec__arena arena;

    if (result)
        return result;
    if (needed == 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "a tree of %d nodes and %d levels; allowed are 1 to %d and 1 to %d", n, d,
                             SPECDEC_TREE_MAX_NODES, SPECDEC_TREE_MAX_DEPTH);
    if (!memory || bytes < needed)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "the best tree needs %zu bytes of memory, not %zu", needed,
                             memory ? bytes : (size_t)0);
    tables->p = p;
    tables->width = width;
    tables->n = n;
    tables->d = d;
    arena.base = (unsigned char *)memory + skip;
    arena.size = bytes - skip;
    arena.used = 0;
    if (specdec__tree_lay_out(tables, &arena))
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "the best tree needs %zu bytes of memory", needed);
    specdec__tree_fill(tables);
    return SPECDEC_OK;
}

/* Splits the m nodes of a subtree between its root and the root's children, by the rows of its level. Writes the sizes
   of the children's subtrees, in order of rank, and returns how many there are. */
static int specdec__tree_split(const specdec__tree_tables *tables, const double *below, int m, int32_t *sizes)
{
    int b = 0, k, y, children;

    for (k = 1; k <= tables->width; k++)
        if (tables->rows[(size_t)k * tables->stride + (size_t)m] > tables->rows[(size_t)b * tables->stride + (size_t)m])
            b = k;
    children = b;
    for (; b > 0; b--) {
        const double *before = tables->rows + (size_t)(b - 1) * tables->stride;
        int largest = specdec__tree_weigh(tables->weights, below, tables->p[b - 1], m - 1), chosen = 0;
        double best = 0.0;

        for (y = specdec__max_int(b, m - largest); y < m; y++) {
            if (before[y] + tables->weights[m - y] > best) {
                best = before[y] + tables->weights[m - y];
                chosen = y;
            }
        }
        sizes[b - 1] = m - chosen;
        m = chosen;
    }
    return children;
}

/* Writes one best tree, level by level, from filled tables. */
static void specdec__tree_write(const specdec__tree_tables *tables, specdec_tree *tree)
{
    int from = 0, end = 1, next = 1, l, i, k, most;

    specdec__tree_put(tree, 0, -1, 0);
    tables->sizes[0] = tables->n;
    for (l = tables->d; from < end; l--, from = end, end = next) {
        const double *below = tables->best + (size_t)(l - 1) * tables->stride;

        for (most = 1, i = from; i < end; i++)
            most = specdec__max_int(most, tables->sizes[i]);
        specdec__tree_fill_rows(tables, below, most);
        for (i = from; i < end; i++) {
            int children = specdec__tree_split(tables, below, tables->sizes[i], tables->sizes + next);

            for (k = 1; k <= children; k++)
                specdec__tree_put(tree, next++, i, k);
        }
    }
}

specdec_result specdec_tree_best(specdec_tree *tree, double *score, const double *p, int width, int n, int d,
                                 void *memory, size_t bytes, specdec_error *error)
{
    specdec__tree_tables tables;
    specdec_result result = specdec__tree_solve(&tables, p, width, n, d, memory, bytes, error);

    if (result)
        return result;
    if (tables.best[(size_t)d * tables.stride + (size_t)n] < 0.0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "no tree has %d nodes in %d levels with at most %d children a node", n, d, width);
    result = specdec__tree_reserve(tree, (size_t)n, error);
    if (result)
        return result;
    if (score)
        *score = tables.best[(size_t)d * tables.stride + (size_t)n];
    specdec__tree_write(&tables, tree);
    return SPECDEC_OK;
}

specdec_result specdec_tree_grid(double *grid, const double *p, int width, int n, int d, void *memory, size_t bytes,
                                 specdec_error *error)
{
    specdec__tree_tables tables;
    specdec_result result;
    int l, m;

    if (!grid)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the grid of scores needs an array to go to");
    result = specdec__tree_solve(&tables, p, width, n, d, memory, bytes, error);
    if (result)
        return result;
    for (m = 0; m <= n; m++) {
        for (l = 0; l <= d; l++) {
            double score = tables.best[(size_t)l * tables.stride + (size_t)m];

            grid[(size_t)m * ((size_t)d + 1) + (size_t)l] = score > 0.0 ? score : 0.0;
        }
    }
    return SPECDEC_OK;
}

/* Is this a cost that a rate can be divided by? */
SPECDEC__INLINE int specdec__tree_is_cost(double cost)
{
    return cost > 0.0 && cost <= 1e30;
}

specdec_result specdec_tree_choose(int *best_n, int *best_d, double *best_rate, const double *grid, int n, int d,
                                   const int32_t *widths, const double *times, int count, double draft_time,
                                   specdec_error *error)
{
    double best = 0.0;
    int i, l;

    if (!best_n || !best_d || !grid || !widths || !times || n < 1 || d < 1 || count < 1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "choosing a tree needs a grid of scores and at least one width with its time");
    if (!(draft_time >= 0.0 && draft_time <= 1e30))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the time of a draft pass must be 0 or more");
    for (i = 0; i < count; i++) {
        if (widths[i] < 1 || widths[i] > n || !specdec__tree_is_cost(times[i]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "width %d must be within 1 and %d and its time positive", (int)widths[i], n);
        for (l = 1; l <= d; l++) {
            double rate = grid[(size_t)widths[i] * ((size_t)d + 1) + (size_t)l] / (times[i] + l * draft_time);

            if (rate > best + best * SPECDEC__TREE_TIE) {
                best = rate;
                *best_n = widths[i];
                *best_d = l;
            }
        }
    }
    if (!(best > 0.0))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "no tree has any of these widths in %d levels", d);
    if (best_rate)
        *best_rate = best;
    return SPECDEC_OK;
}

/* Does candidate a come before b: more probable, or as probable and earlier? */
SPECDEC__INLINE int specdec__tree_before(const float *probability, int32_t a, int32_t b)
{
    return probability[a] > probability[b] || (!(probability[a] < probability[b]) && a < b);
}

SPECDEC__HEAP(specdec__tree_sink, int32_t, float, specdec__tree_before)

/* Candidates in the order of their indices. */
#define SPECDEC__TREE_ORDER(key, a, b) ((a) < (b))
SPECDEC__HEAP(specdec__tree_sink_index, int32_t, void, SPECDEC__TREE_ORDER)

/* Sorts candidates by index: children come behind their parents again. */
static void specdec__tree_sort(int32_t *kept, int count)
{
    int i;

    for (i = count / 2 - 1; i >= 0; i--)
        specdec__tree_sink_index(kept, NULL, count, i);
    for (i = count - 1; i > 0; i--) {
        int32_t moving = kept[0];

        kept[0] = kept[i];
        kept[i] = moving;
        specdec__tree_sink_index(kept, NULL, i, 0);
    }
}

/* Where candidate stands in the sorted list kept[count]. */
static int specdec__tree_find(const int32_t *kept, int count, int32_t candidate)
{
    int low = 0, high = count - 1;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (kept[middle] < candidate)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Are these candidates a tree whose probabilities do not rise from parent to child? */
static specdec_result specdec__tree_check_candidates(const int32_t *parents, const float *probability, int count,
                                                     specdec_error *error)
{
    int i;

    if (!parents || !probability || count < 1 || parents[0] != -1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "growing a tree needs candidates, the first of them the root, with parent -1");
    for (i = 0; i < count; i++) {
        if (i > 0 && (parents[i] < 0 || parents[i] >= i))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "the parent of candidate %d is %d; it must be a candidate before it", i,
                                 (int)parents[i]);
        if (!(probability[i] >= 0.0f) || (i > 0 && probability[i] > probability[parents[i]]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "the probability of candidate %d is negative or above its parent's", i);
    }
    return SPECDEC_OK;
}

specdec_result specdec_tree_grow(specdec_tree *tree, int32_t *kept, const int32_t *parents, const float *probability,
                                 int count, int n, specdec_error *error)
{
    specdec_result result = specdec__tree_check_candidates(parents, probability, count, error);
    int i;

    if (!result)
        result = specdec__tree_reserve(
            tree, (size_t)specdec__min_int(specdec__max_int(n, 0), specdec__max_int(count, 0)), error);
    if (result)
        return result;
    if (!kept)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "growing a tree needs room for the candidates that are kept");
    n = tree->n;
    for (i = 0; i < n; i++)
        kept[i] = i;
    for (i = n / 2 - 1; i >= 0; i--)
        specdec__tree_sink(kept, probability, n, i);
    for (i = n; i < count; i++) {
        if (specdec__tree_before(probability, i, kept[0])) {
            kept[0] = i;
            specdec__tree_sink(kept, probability, n, 0);
        }
    }
    specdec__tree_sort(kept, n);
    specdec__tree_put(tree, 0, -1, 0);
    for (i = 1; i < n; i++) {
        int parent = specdec__tree_find(kept, n, parents[kept[i]]);

        specdec__tree_put(tree, i, parent, specdec__tree_rank(tree, i, parent));
    }
    return SPECDEC_OK;
}

/* The default family: a tree a row. children holds the number of children of each node, level by level, as a digit in
   base 36; nodes behind its end have none. */
typedef struct specdec__tree_default {
    unsigned char n, d;
    const char *children;
} specdec__tree_default;

#define SPECDEC__TREE_DEFAULT_NODES 64 /* no tree of the family has more */

static const specdec__tree_default specdec__tree_defaults[] = {
    /* BEGIN GENERATED TREES */
    {2, 2, "1"},
    {4, 2, "3"},
    {4, 3, "21"},
    {4, 4, "111"},
    {8, 2, "7"},
    {8, 3, "421"},
    {8, 4, "32101"},
    {8, 5, "2211001"},
    {8, 3, "3211"},
    {8, 7, "2101111"},
    {8, 8, "1111111"},
    {8, 4, "221101"},
    {8, 6, "2111011"},
    {16, 3, "83211"},
    {16, 3, "84111"},
    {16, 5, "531100210101"},
    {16, 6, "431102101010001"},
    {16, 4, "53110021011"},
    {16, 3, "651111"},
    {16, 8, "321021110101011"},
    {16, 5, "32102112111"},
    {16, 4, "4311021111"},
    {16, 11, "221201100111111"},
    {16, 7, "221211111110001"},
    {16, 16, "111111111111111"},
    {16, 10, "221211100011111"},
    {16, 6, "22121121111"},
    {16, 13, "221100111111111"},
    {32, 3, "885322111"},
    {32, 4, "87321111031100001001"},
    {32, 5, "85211110031100101000210101"},
    {32, 4, "8621111104111001011"},
    {32, 6, "64111003110110210101021111"},
    {32, 4, "86211110041110010111"},
    {32, 8, "43110311112101010211111010011"},
    {32, 6, "4411131101103101011210111"},
    {32, 4, "752111105111110111"},
    {32, 11, "2212112111211112111111000000111"},
    {32, 7, "3311210112111021111211111"},
    {32, 5, "5411104111111311011011"},
    {32, 16, "2212112111211111000101011111111"},
    {32, 10, "2212112111211112111111100000101"},
    {32, 7, "3311310102101121111211111"},
    {32, 16, "2212112111211111000011011111111"},
    {32, 12, "2212112111211112011111000001111"},
    {64, 4, "8885433224321000032100000210001"},
    {64, 3, "888887655"},
    {64, 4, "88643221173211110311000210010010101"},
    {64, 5, "884221111721111102100101011104111000101100010011"},
    {64, 4, "885322211832111113110021010101011"},
    {64, 7, "86211110052111021111031100101001001003111111112101010101"},
    {64, 5, "883211111621111002101011100511110101110101111"},
    {64, 4, "88532211183221111311002101010111"},
    {64, 8, "65211104111010110311011111131111110110210101010102111111"},
    {64, 6, "7621111052111021111041110101101001104111111110111"},
    {64, 5, "87211111062111102111110521110211110111111"},
    {64, 12, "331131111210101121111021111121111112111111121111111110000000001"},
    {64, 8, "4411141111113110110110311111111311111111112101010101011"},
    {64, 6, "66211105111101011151111111111114111011101110111"},
    {64, 16, "221211211121111211111211111121111111211111111100000110110001111"},
    {64, 11, "221211211121111211111211111121111111211111111211111101"},
    {64, 8, "3311311113111111311111111311111111113111111111111"},
    {64, 16, "221211211121111211111211111121111111211111111100001010110001111"},
    {64, 11, "2212112111211112111112111111211111112111111111110111111"},
    /* END GENERATED TREES */
};

SPECDEC__FOR_SPEED

/* Reads how many children the next node has, from a row's digits, and moves on to the next digit. */
SPECDEC__INLINE int specdec__tree_digit(const char **at)
{
    char digit = **at;

    if (!digit)
        return 0;
    ++*at;
    return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

/* The score of a tree of the family. */
static double specdec__tree_score_default(const specdec__tree_default *shape, const double *p, int width)
{
    double f[SPECDEC__TREE_DEFAULT_NODES], score = 0.0;
    const char *at = shape->children;
    int i, k, next = 1;

    f[0] = 1.0;
    for (i = 0; i < shape->n; i++) {
        int children = specdec__tree_digit(&at);

        score += f[i];
        for (k = 0; k < children && next < shape->n; k++)
            f[next++] = k < width ? f[i] * p[k] : 0.0;
    }
    return score;
}

/* Writes a tree of the family. */
static void specdec__tree_write_default(const specdec__tree_default *shape, specdec_tree *tree)
{
    const char *at = shape->children;
    int i, k, next = 1;

    specdec__tree_put(tree, 0, -1, 0);
    for (i = 0; i < shape->n; i++) {
        int children = specdec__tree_digit(&at);

        for (k = 0; k < children && next < shape->n; k++)
            specdec__tree_put(tree, next++, i, k + 1);
    }
}

/* specdec_tree_pick of trees of so many levels at most, where a step of any size also brings `others` tokens. */
static specdec_result specdec__tree_pick(specdec_tree *tree, double *best_rate, const double *p, int width,
                                         const double *times, int n, int levels, double draft_time, double others,
                                         specdec_error *error)
{
    static const specdec__tree_default alone = {1, 1, ""};
    const specdec__tree_default *best = &alone;
    specdec_result result = specdec__tree_check_acceptance(p, width, error);
    double rate, highest;
    size_t i;

    if (result)
        return result;
    if (!times || n < 1 || !(draft_time >= 0.0 && draft_time <= 1e30))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "picking a tree needs the times of steps of 1 to n nodes and of a draft pass");
    for (i = 1; i <= (size_t)n; i++)
        if (!specdec__tree_is_cost(times[i]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the time of a step of %d nodes is not positive",
                                 (int)i);
    highest = (1.0 + others) / times[1];
    for (i = 0; i < SPECDEC__COUNT(specdec__tree_defaults); i++) {
        const specdec__tree_default *shape = &specdec__tree_defaults[i];

        if (shape->n > n || shape->d > levels || (tree && shape->n > tree->capacity))
            continue;
        rate = (others + specdec__tree_score_default(shape, p, width)) / (times[shape->n] + shape->d * draft_time);
        if (rate > highest + highest * SPECDEC__TREE_TIE) {
            highest = rate;
            best = shape;
        }
    }
    result = specdec__tree_reserve(tree, best->n, error);
    if (result)
        return result;
    specdec__tree_write_default(best, tree);
    if (best_rate)
        *best_rate = highest;
    return SPECDEC_OK;
}

specdec_result specdec_tree_pick(specdec_tree *tree, double *best_rate, const double *p, int width, const double *times,
                                 int n, double draft_time, specdec_error *error)
{
    return specdec__tree_pick(tree, best_rate, p, width, times, n, SPECDEC_TREE_MAX_DEPTH, draft_time, 0.0, error);
}

/* =====================================================================================================================
 * >>verify (private): the acceptance rules, one small function each, and the walk down a token tree.
 * May call: >>base >>kernel >>sample >>tree
 * ================================================================================================================== */

static void specdec__verify_take(specdec_verdict *verdict, int child, int32_t token)
{
    verdict->child = child;
    verdict->token = token;
}

void specdec_verify_match(specdec_verdict *verdict, const int32_t *children, int child_count, int32_t token)
{
    int i;

    specdec__verify_take(verdict, -1, token);
    for (i = 0; i < child_count && verdict->child < 0; i++)
        if (children[i] == token)
            verdict->child = i;
}

#if SPECDEC__VERIFIERS
/* What is left of target P and draft Q after some children were rejected. Nothing is ever written back: the residual of
   token x is max(P[x] - draft_share * Q[x] - uniform_share, 0), since max(max(a - b, 0) - c, 0) = max(a - b - c, 0) for
   b, c >= 0. */
typedef struct specdec__verify_state {
    specdec__residuals_function *residuals;
    const specdec_choice *choice;
    float share_high, share_low; /* their sum is draft_share: products with a float are then exact in double */
    double draft_share;
    double uniform_share;
    double target_total; /* sum of the residuals */
    double draft_total;  /* sum of the draft's weights that are left */
    int excluded;        /* children before this one are used up, if the draft draws without replacement */
    int uniform_from;    /* children from here on are uniform draws, Q being used up; INT32_MAX: none */
} specdec__verify_state;

/* The residual of one token, unnormalised. */
SPECDEC__INLINE double specdec__verify_residual(const specdec__verify_state *state, int token)
{
    double q = state->choice->draft ? (double)state->choice->draft[token] : 0.0;
    double rest = (double)state->choice->target[token] - (double)state->share_high * q;

    rest = rest - (double)state->share_low * q;
    rest = rest - state->uniform_share;
    return rest > 0.0 ? rest : 0.0;
}

/* Does rejecting child i use up a token: could the draft have drawn it? */
SPECDEC__INLINE int specdec__verify_used(const specdec__verify_state *state, int i)
{
    return i >= state->uniform_from || state->choice->draft[state->choice->children[i]] > 0.0f;
}

/* The smallest used-up token that is not below from; vocab when there is none. */
static int specdec__verify_next_used(const specdec__verify_state *state, int from)
{
    int i, next = state->choice->vocab;

    for (i = 0; i < state->excluded; i++) {
        int token = state->choice->children[i];

        if (token >= from && token < next && specdec__verify_used(state, i))
            next = token;
    }
    return next;
}

#define SPECDEC__VERIFY_LANES 16 /* partial sums: token t belongs to sum t % 16 */
#define SPECDEC__VERIFY_RUN 512  /* tokens between looks at a running sum */

/* Adds the residuals and the draft's weights of tokens [from, to) to partial sums. Without a draft its share is 0 and
   the target's probabilities stand in for the draft's; the weights are not used then. */
static void specdec__verify_add(const specdec__verify_state *state, int from, int to, double *residuals,
                                double *weights)
{
    const float *target = state->choice->target, *draft = state->choice->draft ? state->choice->draft : target;

    for (; from < to && (from % SPECDEC__VERIFY_LANES || to - from < SPECDEC__VERIFY_LANES); from++) {
        residuals[from % SPECDEC__VERIFY_LANES] += specdec__verify_residual(state, from);
        weights[from % SPECDEC__VERIFY_LANES] += (double)draft[from];
    }
    if (from < to)
        state->residuals(target + from, draft + from, to - from, (double)state->share_high, (double)state->share_low,
                         state->uniform_share, residuals, weights);
}

static double specdec__verify_total(const double *lanes)
{
    double total = 0.0;
    int i;

    for (i = 0; i < SPECDEC__VERIFY_LANES; i++)
        total += lanes[i];
    return total;
}

/* Sums the residuals and the draft's weights over the tokens that are left. */
static void specdec__verify_sum(specdec__verify_state *state)
{
    double residuals[SPECDEC__VERIFY_LANES] = {0}, weights[SPECDEC__VERIFY_LANES] = {0};
    int from, end, left = 0;

    for (from = 0; from < state->choice->vocab; from = end + 1) {
        end = specdec__verify_next_used(state, from);
        left += end - from;
        specdec__verify_add(state, from, end, residuals, weights);
    }
    state->target_total = specdec__verify_total(residuals);
    state->draft_total = state->uniform_from < INT32_MAX ? (double)left : specdec__verify_total(weights);
}

/* Draws a token from the residual. */
static int32_t specdec__verify_draw(const specdec__verify_state *state, double uniform)
{
    double wanted = uniform * state->target_total, reached = 0.0;
    int from, end, token;
    int32_t last = 0;

    for (from = 0; from < state->choice->vocab; from = end) {
        double residuals[SPECDEC__VERIFY_LANES] = {0}, weights[SPECDEC__VERIFY_LANES] = {0}, run;
        int used = specdec__verify_next_used(state, from);

        if (used == from) {
            end = from + 1;
            continue;
        }
        end = specdec__min_int(used, from + SPECDEC__VERIFY_RUN);
        specdec__verify_add(state, from, end, residuals, weights);
        run = specdec__verify_total(residuals);
        if (run > 0.0 && (reached + run > wanted || end >= state->choice->vocab)) {
            double within = reached;

            for (token = from; token < end; token++) {
                double rest = specdec__verify_residual(state, token);

                last = rest > 0.0 ? (int32_t)token : last;
                within += rest;
                if (rest > 0.0 && within > wanted)
                    return last;
            }
        } else if (run > 0.0) {
            for (token = end - 1; token >= from && !(specdec__verify_residual(state, token) > 0.0); token--)
                continue;
            last = token;
        }
        reached += run;
    }
    return last;
}

/* Starts over with the whole of P and Q. */
static void specdec__verify_start(specdec__verify_state *state, specdec__residuals_function *residuals,
                                  const specdec_choice *choice)
{
    memset(state, 0, sizeof *state);
    state->residuals = residuals;
    state->choice = choice;
    state->uniform_from = INT32_MAX;
    specdec__verify_sum(state);
}

/* Takes what the draft offered out of the residual: R <- max(R - D, 0), unnormalised. */
static void specdec__verify_subtract(specdec__verify_state *state)
{
    if (state->uniform_from < INT32_MAX) {
        state->uniform_share += state->target_total / state->draft_total;
        return;
    }
    state->draft_share += state->target_total / state->draft_total;
    state->share_high = (float)state->draft_share;
    state->share_low = (float)(state->draft_share - (double)state->share_high);
}

/* No child is accepted: the bonus token comes from the residual, or from P when nothing is left of that. */
static void specdec__verify_bonus(specdec__verify_state *state, specdec_verdict *verdict)
{
    if (!(state->target_total > 0.0))
        specdec__verify_start(state, state->residuals, state->choice);
    verdict->child = -1;
    verdict->token = specdec__verify_draw(state, specdec_uniform_next(state->choice->random));
}

/* Accepts a child with probability min(1, R[x] / D[x]), where D[x] = weight / draft_total. */
static int specdec__verify_accept(const specdec__verify_state *state, int32_t token, double weight)
{
    double uniform = specdec_uniform_next(state->choice->random);

    return uniform * weight * state->target_total < specdec__verify_residual(state, token) * state->draft_total;
}

/* Sequoia's rule for children drawn without replacement: Chen et al. 2024, arXiv 2402.12374, algorithm 1. Children that
   the draft could not have drawn are passed over. */
static void specdec__verify_sequoia(specdec__residuals_function *residuals, const specdec_choice *choice,
                                    specdec_verdict *verdict)
{
    specdec__verify_state state;
    int i;

    specdec__verify_start(&state, residuals, choice);
    for (i = 0; i < choice->child_count && state.target_total > 0.0; i++) {
        int32_t token = choice->children[i];
        double weight = state.uniform_from < INT32_MAX ? 1.0 : (double)choice->draft[token];

        if (!(weight > 0.0) || specdec__verify_next_used(&state, token) == token)
            continue;
        if (specdec__verify_accept(&state, token, weight)) {
            specdec__verify_take(verdict, i, token);
            return;
        }
        specdec__verify_subtract(&state);
        state.excluded = i + 1;
        specdec__verify_sum(&state);
        if (!(state.draft_total > 0.0) && state.uniform_from == INT32_MAX) {
            state.uniform_from = i + 1;
            specdec__verify_sum(&state);
        }
    }
    specdec__verify_bonus(&state, verdict);
}

/* SpecInfer's rule for children drawn with replacement: Miao et al. 2024, arXiv 2305.09781. */
static void specdec__verify_specinfer(specdec__residuals_function *residuals, const specdec_choice *choice,
                                      specdec_verdict *verdict)
{
    specdec__verify_state state;
    int i;

    specdec__verify_start(&state, residuals, choice);
    for (i = 0; i < choice->child_count && state.target_total > 0.0; i++) {
        int32_t token = choice->children[i];
        double weight = (double)choice->draft[token];

        if (!(weight > 0.0))
            continue;
        if (specdec__verify_accept(&state, token, weight)) {
            specdec__verify_take(verdict, i, token);
            return;
        }
        specdec__verify_subtract(&state);
        specdec__verify_sum(&state);
    }
    specdec__verify_bonus(&state, verdict);
}

/* One minus the probability that none of k draws is accepted, each being accepted with probability beta. */
static double specdec__verify_any(double beta, int k)
{
    double none = 1.0;
    int i;

    for (i = 0; i < k; i++)
        none *= 1.0 - beta;
    return 1.0 - none;
}

/* The probability that k-sequential selection with divisor rho accepts a given draw. */
static double specdec__verify_spectr_beta(const specdec__verify_state *state, double rho)
{
    double sum = 0.0;
    int token;

    for (token = 0; token < state->choice->vocab; token++) {
        double p = (double)state->choice->target[token] / (rho * state->target_total);
        double q = (double)state->choice->draft[token] / state->draft_total;

        sum += p < q ? p : q;
    }
    return sum > 1.0 ? 1.0 : sum;
}

/* The least rho in [1, k] for which the residual is a distribution, from above: every larger one is lossless, too. */
static double specdec__verify_spectr_rho(const specdec__verify_state *state, int k)
{
    double low = 1.0, high = k;
    int i;

    for (i = 0; i < 30 && high - low > 1e-9; i++) {
        double rho = 0.5 * low + 0.5 * high;
        double beta = specdec__verify_spectr_beta(state, rho);

        if (specdec__verify_any(beta, k) > rho * beta)
            low = rho;
        else
            high = rho;
    }
    return high;
}

/* A token from SpecTr's residual P - min(Q, P/rho) * share, all normalised. */
static int32_t specdec__verify_spectr_draw(const specdec__verify_state *state, double rho, double share)
{
    double total = 0.0, wanted = 2.0; /* the first pass sums, the second stops at the wanted place */
    int pass, token;
    int32_t last = 0;

    for (pass = 0; pass < 2; pass++) {
        double reached = 0.0;

        for (token = 0; token < state->choice->vocab; token++) {
            double p = (double)state->choice->target[token] / state->target_total;
            double q = (double)state->choice->draft[token] / state->draft_total;
            double taken = (p / rho < q ? p / rho : q) * share;

            if (p > taken) {
                reached += p - taken;
                last = token;
                if (reached > wanted)
                    return last;
            }
        }
        total = reached;
        if (!(total > 0.0))
            break;
        wanted = pass ? wanted : total * specdec_uniform_next(state->choice->random);
    }
    return total > 0.0 ? last : specdec__verify_draw(state, specdec_uniform_next(state->choice->random));
}

/* SpecTr's k-sequential selection, for children drawn with replacement: Sun et al. 2023, arXiv 2310.15141. */
static void specdec__verify_spectr(specdec__residuals_function *residuals, const specdec_choice *choice,
                                   specdec_verdict *verdict)
{
    specdec__verify_state state;
    double rho, beta;
    int i;

    specdec__verify_start(&state, residuals, choice);
    if (choice->child_count == 0) {
        specdec__verify_bonus(&state, verdict);
        return;
    }
    rho = specdec__verify_spectr_rho(&state, choice->child_count);
    for (i = 0; i < choice->child_count; i++) {
        int32_t token = choice->children[i];
        double p = (double)choice->target[token] * state.draft_total;
        double q = (double)choice->draft[token] * state.target_total;

        if (q > 0.0 && specdec_uniform_next(choice->random) * rho * q < p) {
            specdec__verify_take(verdict, i, token);
            return;
        }
    }
    beta = specdec__verify_spectr_beta(&state, rho);
    verdict->child = -1;
    verdict->token = specdec__verify_spectr_draw(
        &state, rho, beta > 0.0 ? specdec__verify_any(beta, choice->child_count) / beta : 0.0);
}

/* The target draws for itself; a child that equals its token is accepted. */
static void specdec__verify_top_k(specdec__residuals_function *residuals, const specdec_choice *choice,
                                  specdec_verdict *verdict)
{
    specdec__verify_state state;
    specdec_choice target = *choice;

    target.draft = NULL;
    target.child_count = 0;
    specdec__verify_start(&state, residuals, &target);
    specdec_verify_match(verdict, choice->children, choice->child_count,
                         specdec__verify_draw(&state, specdec_uniform_next(choice->random)));
}

#define SPECDEC__VERIFIER(name) specdec__verify_##name
#else
#define SPECDEC__VERIFIER(name) NULL /* left out */
#endif

/* The target's most probable token; of equals the lowest. */
static void specdec__verify_greedy(specdec__residuals_function *residuals, const specdec_choice *choice,
                                   specdec_verdict *verdict)
{
    int token, best = 0;

    (void)residuals;
    for (token = 1; token < choice->vocab; token++)
        if (choice->target[token] > choice->target[best])
            best = token;
    specdec_verify_match(verdict, choice->children, choice->child_count, best);
}

/* A row for each rule, in the order of specdec_rule. */
static const struct specdec__verify_rule {
    void (*verify)(specdec__residuals_function *residuals, const specdec_choice *choice, specdec_verdict *verdict);
    int needs_draft, needs_random;
} specdec__verify_rules[SPECDEC_RULE_COUNT] = {
    {NULL, 0, 0},                         /* SPECDEC_RULE_COUPLED: specdec_verify_match */
    {SPECDEC__VERIFIER(sequoia), 1, 1},   /* SPECDEC_RULE_SEQUOIA */
    {SPECDEC__VERIFIER(specinfer), 1, 1}, /* SPECDEC_RULE_SPECINFER */
    {SPECDEC__VERIFIER(spectr), 1, 1},    /* SPECDEC_RULE_SPECTR */
    {SPECDEC__VERIFIER(top_k), 0, 1},     /* SPECDEC_RULE_TOP_K */
    {specdec__verify_greedy, 0, 0},    /* SPECDEC_RULE_GREEDY */
};

/* Counts the weights that are not numbers of at least 0 (bad) and those above 0 (positive). */
SPECDEC__VECTORISE static void specdec__verify_count(const float *weights, int vocab, int *bad, int *positive)
{
    int token, no_weights = 0, above = 0;

    for (token = 0; token < vocab; token++) {
        no_weights += !(weights[token] >= 0.0f) | !(weights[token] <= 1e30f);
        above += weights[token] > 0.0f;
    }
    *bad = no_weights;
    *positive = above;
}

/* Is weights[vocab] something that can be normalised? */
static specdec_result specdec__verify_check_weights(const float *weights, int vocab, const char *whose,
                                                    specdec_error *error)
{
    int token = 0, bad, positive;

    specdec__verify_count(weights, vocab, &bad, &positive);
    if (bad) {
        while (weights[token] >= 0.0f && weights[token] <= 1e30f)
            token++;
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "the %s's probability of token %d is not a number of at least 0", whose, token);
    }
    if (!positive)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the %s's probabilities are all 0", whose);
    return SPECDEC_OK;
}

specdec_result specdec_verify(specdec_rule rule, const specdec_choice *choice, specdec_verdict *verdict,
                              specdec_error *error)
{
    specdec_result result;
    int i;

    if ((int)rule <= SPECDEC_RULE_COUPLED || (int)rule >= SPECDEC_RULE_COUNT || !choice || !verdict)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "verifying needs a rule that decides by distributions, a choice and a verdict");
    if (!choice->target || choice->vocab < 1 || choice->child_count < 0 || (choice->child_count && !choice->children))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "verifying needs the target's probabilities of at least one token, and the children");
    if (!specdec__verify_rules[rule].verify)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "SPECDEC_NO_VERIFIERS leaves this rule out of this build");
    if (!choice->random && specdec__verify_rules[rule].needs_random)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "this rule needs a source of uniform numbers");
    for (i = 0; i < choice->child_count; i++)
        if (choice->children[i] < 0 || choice->children[i] >= choice->vocab)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "token %d is not in the vocabulary of %u",
                                 (int)choice->children[i], (unsigned)choice->vocab);
    result = specdec__verify_check_weights(choice->target, choice->vocab, "target", error);
    if (!result && specdec__verify_rules[rule].needs_draft && choice->child_count) {
        if (!choice->draft)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "this rule needs the draft's probabilities");
        result = specdec__verify_check_weights(choice->draft, choice->vocab, "draft", error);
    }
    if (!result)
        specdec__verify_rules[rule].verify(specdec__scalar_residuals, choice, verdict);
    return result;
}

/* Gathers the children of a node that hold a token: their nodes and tokens, in order of rank. Returns how many. */
static int specdec__verify_gather(const specdec_tree *tree, const int32_t *tokens, int node, int32_t *nodes,
                                  int32_t *children)
{
    int i, count = 0;

    for (i = specdec__tree_child(tree, node, node + 1); i < tree->n; i = specdec__tree_child(tree, node, i + 1)) {
        if (tokens[i] >= 0) {
            nodes[count] = i;
            children[count++] = tokens[i];
        }
    }
    return count;
}

specdec_result specdec_verify_walk(int32_t *path, int32_t *accepted, int *accepted_count, const specdec_tree *tree,
                                   const int32_t *tokens, specdec_verify_node verify, void *user_data,
                                   specdec_error *error)
{
    specdec_result result = specdec_tree_check(tree, error);
    int node = 0, depth = 0;

    if (result)
        return result;
    if (!path || !accepted || !accepted_count || !tokens || !verify)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "walking a tree needs its tokens, a rule, and room for the path and the text");
    for (;;) {
        int count = specdec__verify_gather(tree, tokens, node, path + depth, accepted + depth);
        specdec_verdict verdict;

        specdec__verify_take(&verdict, -1, -1);
        result = verify(user_data, node, accepted + depth, count, &verdict);
        if (result)
            return result;
        if (verdict.child >= count)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "child %d of node %d was accepted; it has %d",
                                 verdict.child, node, count);
        accepted[depth] = verdict.child < 0 ? verdict.token : accepted[depth + verdict.child];
        if (verdict.child < 0)
            break;
        node = path[depth + verdict.child];
        path[depth++] = node;
    }
    *accepted_count = depth + 1;
    return SPECDEC_OK;
}

/* =====================================================================================================================
 * >>ngram (private): an index of every run of up to context + 1 tokens in some texts, trees of likely continuations
 *     grown from it, and a file of what it holds. What one text brought is offered to all.
 *     May call: >>base >>tree
 * ================================================================================================================== */

#define SPECDEC__NGRAM_CONTEXT_MAX 8   /* tokens of context, at most */
#define SPECDEC__NGRAM_WIDTH       8   /* continuations considered a node */
#define SPECDEC__NGRAM_SCAN        512 /* distinct continuations of a context looked at, newest first */
#define SPECDEC__NGRAM_END        (-1) /* among tokens: a text ends here */
#define SPECDEC__NGRAM_HEAD        24  /* bytes before the tokens of a file */

/* A run of tokens that occurs in the texts. Indices of runs; -1: none. Run 0 is the empty one. */
typedef struct specdec__ngram_run {
    int32_t token;  /* its last token */
    int32_t parent; /* the run without its last token */
    int32_t suffix; /* the run without its first token */
    int32_t depth;  /* tokens */
    int32_t count;  /* occurrences; a run that has lost all of them stays until those made after it are gone */
    int32_t total;  /* occurrences that have a token after them */
    int32_t kinds;  /* different tokens after them */
    int32_t child;  /* the newest run that is one token longer */
    int32_t sibling;
    int32_t chain; /* next in the hash bucket */
} specdec__ngram_run;

/* A node that the tree may get. */
typedef struct specdec__ngram_offer {
    float probability; /* of the path from the root */
    int32_t token, parent, depth;
    int32_t run;   /* the longest run that ends here and may be continued */
    int32_t order; /* of making; settles equal probabilities */
} specdec__ngram_offer;

/* A live text's place in the index, which counts text[from .. length). An empty place is free for the next text. */
typedef struct specdec__ngram_reader {
    const int32_t *text; /* the caller's: what was counted stays as it is until it is taken back */
    int from, length;
    int32_t active[SPECDEC__NGRAM_CONTEXT_MAX + 1]; /* the run that is the text's last k tokens */
} specdec__ngram_reader;

/* How large an index is. */
typedef struct specdec__ngram_size {
    int capacity;  /* runs: a token of text needs up to context + 1, of 40 bytes and a bucket each */
    int context;   /* tokens, 1 to SPECDEC__NGRAM_CONTEXT_MAX */
    int max_nodes; /* of a tree */
    int readers;   /* live texts */
    int history;   /* tokens kept of texts that have ended, each text's end taking one more; 0: none */
} specdec__ngram_size;

/* The index. It counts the history and what its readers have, each run as often as it occurs in these. With one text
   and no history, runs are made and removed in stack order, so a rewind leaves no trace. */
typedef struct specdec__ngram {
    specdec__ngram_size size;
    specdec__ngram_run *runs;       /* [size.capacity] */
    int32_t *buckets;               /* [bucket_count], a power of two */
    specdec__ngram_offer *offers;   /* [size.max_nodes * SPECDEC__NGRAM_WIDTH], a heap */
    specdec__ngram_reader *readers; /* [size.readers] */
    int32_t *history;               /* [size.history], a ring: texts, each with SPECDEC__NGRAM_END behind it */
    specdec__ngram_reader past;     /* where history is indexed anew */
    int count, offer_count, offer_order;
    int oldest, remembered; /* in history: where it begins, and how much there is */
    uint32_t bucket_count;
} specdec__ngram;

/* A reader is to count its text from here. */
static void specdec__ngram_start(specdec__ngram_reader *reader, int from)
{
    int k;

    reader->from = reader->length = from;
    for (k = 1; k <= SPECDEC__NGRAM_CONTEXT_MAX; k++)
        reader->active[k] = -1;
    reader->active[0] = 0;
}

/* Removes all runs. */
static void specdec__ngram_clear(specdec__ngram *index)
{
    uint32_t i;

    for (i = 0; i < index->bucket_count; i++)
        index->buckets[i] = -1;
    memset(&index->runs[0], 0, sizeof index->runs[0]);
    index->runs[0].token = index->runs[0].parent = index->runs[0].child = index->runs[0].sibling =
        index->runs[0].chain = -1;
    index->count = 1;
}

/* Takes the index's memory from an arena. One that only counts fills nothing. */
static specdec_result specdec__ngram_lay_out(specdec__ngram *index, specdec__arena *arena,
                                                             const specdec__ngram_size *size, specdec_error *error)
{
    const int most = 1 << 28, context = size->context, max_nodes = size->max_nodes;
    int i;

    if (context < 1 || context > SPECDEC__NGRAM_CONTEXT_MAX || max_nodes < 1 || max_nodes > SPECDEC_TREE_MAX_NODES)
        return specdec__fail(
            error, SPECDEC_ERROR_ARGUMENT,
            "an n-gram index of %d tokens of context for trees of %d nodes; allowed are 1 to %d and 1 to %d", context,
            max_nodes, SPECDEC__NGRAM_CONTEXT_MAX, SPECDEC_TREE_MAX_NODES);
    if (size->readers < 1 || size->readers > most / (16 * (context + 1)) || size->capacity > most ||
        size->capacity < 16 * (context + 1) * size->readers || size->history < 0 || size->history > most)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an n-gram index of %d runs for %d texts and a history of "
                             "%d tokens; each text needs %d runs, at most %d are allowed", size->capacity,
                             size->readers, size->history, 16 * (context + 1), most);
    memset(index, 0, sizeof *index);
    index->size = *size;
    for (index->bucket_count = 16; index->bucket_count < (uint32_t)size->capacity; index->bucket_count *= 2)
        continue;
    index->runs = SPECDEC__TAKE(arena, specdec__ngram_run, size->capacity);
    index->buckets = SPECDEC__TAKE(arena, int32_t, index->bucket_count);
    index->offers = SPECDEC__TAKE(arena, specdec__ngram_offer, (size_t)max_nodes * SPECDEC__NGRAM_WIDTH);
    index->readers = SPECDEC__TAKE(arena, specdec__ngram_reader, size->readers);
    index->history = SPECDEC__TAKE(arena, int32_t, size->history);
    if (arena->used == SIZE_MAX)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "no memory left for an n-gram index of %d runs",
                             size->capacity);
    if (!arena->base)
        return SPECDEC_OK;
    specdec__ngram_clear(index);
    specdec__ngram_start(&index->past, 0);
    for (i = 0; i < size->readers; i++)
        specdec__ngram_start(&index->readers[i], 0);
    return SPECDEC_OK;
}

/* --- counting ----------------------------------------------------------------------------------------------------- */

/* The bucket of the run that continues parent by token. */
SPECDEC__INLINE int32_t *specdec__ngram_bucket(const specdec__ngram *index, int32_t parent, int32_t token)
{
    uint64_t key = ((uint64_t)(uint32_t)parent << 32 | (uint32_t)token) * 0x9e3779b97f4a7c15u;

    return &index->buckets[(uint32_t)(key >> 32) & (index->bucket_count - 1)];
}

/* The run that continues parent by token, or -1. */
static int32_t specdec__ngram_find(const specdec__ngram *index, int32_t parent, int32_t token)
{
    int32_t run = *specdec__ngram_bucket(index, parent, token);

    while (run >= 0 && (index->runs[run].parent != parent || index->runs[run].token != token))
        run = index->runs[run].chain;
    return run;
}

/* The run text[from .. end), or -1. */
static int32_t specdec__ngram_locate(const specdec__ngram *index, const int32_t *text, int from, int end)
{
    int32_t run = 0;

    for (; from < end && run >= 0; from++)
        run = specdec__ngram_find(index, run, text[from]);
    return run;
}

/* Adds the run that continues parent by token; there is room. */
static int32_t specdec__ngram_add(specdec__ngram *index, int32_t parent, int32_t token, int32_t suffix)
{
    int32_t *bucket = specdec__ngram_bucket(index, parent, token), at = index->count++;
    specdec__ngram_run *run = &index->runs[at];

    memset(run, 0, sizeof *run);
    run->token = token;
    run->parent = parent;
    run->suffix = suffix;
    run->depth = index->runs[parent].depth + 1;
    run->child = -1;
    run->sibling = index->runs[parent].child;
    run->chain = *bucket;
    *bucket = at;
    index->runs[parent].child = at;
    return at;
}

/* Removes the newest runs, as far as they have no occurrences left. */
static void specdec__ngram_pop(specdec__ngram *index)
{
    while (index->count > 1 && index->runs[index->count - 1].count <= 0) {
        const specdec__ngram_run *run = &index->runs[--index->count];

        *specdec__ngram_bucket(index, run->parent, run->token) = run->chain;
        index->runs[run->parent].child = run->sibling;
    }
}

/* Counts token as what follows a reader's text; there is room. O(context). */
static void specdec__ngram_insert(specdec__ngram *index, specdec__ngram_reader *reader, int32_t token)
{
    int32_t longer[SPECDEC__NGRAM_CONTEXT_MAX + 2], suffix = 0;
    int k, reached = 0;

    longer[0] = 0;
    for (k = 0; k <= index->size.context && reader->active[k] >= 0; k++) {
        int32_t run = specdec__ngram_find(index, reader->active[k], token);

        if (run < 0)
            run = specdec__ngram_add(index, reader->active[k], token, suffix);
        if (!index->runs[run].count++)
            index->runs[reader->active[k]].kinds++;
        index->runs[reader->active[k]].total++;
        suffix = longer[k + 1] = run;
        reached = k + 1;
    }
    for (k = 1; k <= index->size.context; k++)
        reader->active[k] = k <= reached ? longer[k] : -1;
    reader->length++;
}

/* Takes one occurrence out of the counts. A caller's changed text may have none. */
static void specdec__ngram_uncount(specdec__ngram *index, int32_t run)
{
    specdec__ngram_run *parent;

    if (run <= 0 || index->runs[run].count <= 0)
        return;
    parent = &index->runs[index->runs[run].parent];
    parent->total--;
    if (!--index->runs[run].count)
        parent->kinds--;
}

/* Takes the last token of a reader's text out of the counts: the runs that end with it. */
static void specdec__ngram_remove(specdec__ngram *index, specdec__ngram_reader *reader, const int32_t *text)
{
    int end = reader->length--, k;

    for (k = 1; k <= index->size.context + 1 && end - k >= reader->from; k++)
        specdec__ngram_uncount(index, specdec__ngram_locate(index, text, end - k, end));
    specdec__ngram_pop(index);
}

/* Takes the first token of what is counted of a text out of the counts: the runs that begin with it. text[count] is
   all that is counted, or its first context + 1 tokens. */
static void specdec__ngram_forget(specdec__ngram *index, const int32_t *text, int count)
{
    int32_t run = 0;
    int i;

    for (i = 0; i <= index->size.context && i < count && run >= 0; i++) {
        run = specdec__ngram_find(index, run, text[i]);
        specdec__ngram_uncount(index, run);
    }
    specdec__ngram_pop(index);
}

/* --- bounds: the oldest is forgotten ------------------------------------------------------------------------------ */

/* A place in the history, counted from the oldest. */
SPECDEC__INLINE int32_t *specdec__ngram_past(const specdec__ngram *index, int at)
{
    return &index->history[(index->oldest + at) % index->size.history];
}

/* Forgets the first `count` places of the history, whose runs are counted no more. */
static void specdec__ngram_drop(specdec__ngram *index, int count)
{
    if (count > 0)
        index->oldest = (index->oldest + count) % index->size.history;
    index->remembered -= count;
}

/* Makes a token, or the end of a text, the newest of the history. A full one forgets its oldest. Counts nothing. */
static void specdec__ngram_remember(specdec__ngram *index, int32_t token)
{
    int32_t first[SPECDEC__NGRAM_CONTEXT_MAX + 1];
    int n = 0;

    if (index->remembered == index->size.history) {
        for (; n <= index->size.context && n < index->remembered; n++)
            if ((first[n] = *specdec__ngram_past(index, n)) == SPECDEC__NGRAM_END)
                break;
        specdec__ngram_forget(index, first, n);
        specdec__ngram_drop(index, 1);
    }
    *specdec__ngram_past(index, index->remembered++) = token;
}

/* So many tokens have room in half of the runs, whatever they are. */
static int specdec__ngram_budget(const specdec__ngram *index)
{
    return index->size.capacity / (2 * (index->size.context + 1));
}

/* The most tokens that each reader may keep so that all together keep at most `room`. */
static int specdec__ngram_share(const specdec__ngram *index, int room)
{
    int low = 0, high = room, i;

    while (low < high) {
        int middle = high - (high - low) / 2;
        int64_t sum = 0;

        for (i = 0; i < index->size.readers; i++)
            sum += specdec__min_int(index->readers[i].length - index->readers[i].from, middle);
        if (sum <= room)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Counts a token of the history, or begins its next text. */
static void specdec__ngram_replay(specdec__ngram *index, int32_t token)
{
    if (token == SPECDEC__NGRAM_END)
        specdec__ngram_start(&index->past, 0);
    else
        specdec__ngram_insert(index, &index->past, token);
}

/* Makes room: indexes anew the newest tokens of history and live texts, as many as fill at most half of the runs. Half
   of these tokens, or what the live texts leave, are of the history; live texts share the rest, and each keeps its
   newest. O(capacity), once in at least capacity / (2 * (context + 1)) tokens: a constant time a token. */
static void specdec__ngram_rebuild(specdec__ngram *index)
{
    const int budget = specdec__ngram_budget(index);
    int64_t live = 0;
    int i, kept, share;

    for (i = 0; i < index->size.readers; i++)
        live += index->readers[i].length - index->readers[i].from;
    kept = specdec__max_int(budget / 2, budget - (int)(live < budget ? live : budget));
    kept = specdec__min_int(kept, index->remembered);
    share = specdec__ngram_share(index, budget - kept);
    specdec__ngram_drop(index, index->remembered - kept);
    specdec__ngram_clear(index);
    specdec__ngram_start(&index->past, 0);
    for (i = 0; i < kept; i++)
        specdec__ngram_replay(index, *specdec__ngram_past(index, i));
    for (i = 0; i < index->size.readers; i++) {
        specdec__ngram_reader *reader = &index->readers[i];
        const int end = reader->length;

        specdec__ngram_start(reader, specdec__max_int(reader->from, end - share));
        while (reader->length < end)
            specdec__ngram_insert(index, reader, reader->text[reader->length]);
    }
}

/* Makes room for one more token if there is none. */
SPECDEC__INLINE void specdec__ngram_make_room(specdec__ngram *index)
{
    if (index->size.capacity - index->count <= index->size.context)
        specdec__ngram_rebuild(index);
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

/* Lets an empty reader begin with a text whose first `shared` tokens another text has counted: a fork. Of these only
   the context of what will follow is counted again. */
static void specdec__ngram_begin(const specdec__ngram *index, specdec__ngram_reader *reader, int shared)
{
    specdec__ngram_start(reader, specdec__max_int(shared - index->size.context, 0));
}

/* Indexes text[reader->length .. length). When no room is left, the oldest is forgotten. */
static void specdec__ngram_extend(specdec__ngram *index, specdec__ngram_reader *reader,
                                                  const int32_t *text, int length)
{
    reader->text = text;
    while (reader->length < length) {
        specdec__ngram_make_room(index);
        specdec__ngram_insert(index, reader, text[reader->length]);
    }
}

/* Goes back to text[0 .. length) and takes what this reader counted behind it out of the counts. text still holds the
   tokens that are taken back; the caller drops them afterwards. O(context ^ 2) a token. To before what is counted: what
   then is newest is counted anew. */
static void specdec__ngram_rewind(specdec__ngram *index, specdec__ngram_reader *reader,
                                                  const int32_t *text, int length)
{
    int k;

    reader->text = text;
    length = specdec__max_int(length, 0);
    while (reader->length > specdec__max_int(length, reader->from))
        specdec__ngram_remove(index, reader, text);
    if (length < reader->from) {
        specdec__ngram_start(reader, specdec__max_int(length - specdec__ngram_budget(index), 0));
        specdec__ngram_extend(index, reader, text, length);
        return;
    }
    for (k = 1; k <= index->size.context; k++)
        reader->active[k] =
            length - k >= reader->from ? specdec__ngram_locate(index, text, length - k, length) : -1;
}

/* The text has ended: what is counted of it goes into the history, or its newest part, if there is less room. The
   reader is empty afterwards. A text that shall leave nothing is rewound to 0 instead. O(context) a token. */
static void specdec__ngram_end(specdec__ngram *index, specdec__ngram_reader *reader,
                                               const int32_t *text)
{
    const int room = specdec__max_int(index->size.history - 1, 0), length = reader->length;
    int at;

    for (at = reader->from; length - at > room; at++)
        specdec__ngram_forget(index, text + at, length - at);
    if (at < length) {
        for (; at < length; at++)
            specdec__ngram_remember(index, text[at]);
        specdec__ngram_remember(index, SPECDEC__NGRAM_END);
    }
    specdec__ngram_start(reader, 0);
}

/* --- trees -------------------------------------------------------------------------------------------------------- */

/* The longest suffix of a run that is short enough to be continued and ever was; 0 when none is. */
static int32_t specdec__ngram_settle(const specdec__ngram *index, int32_t run)
{
    while (run > 0 && (index->runs[run].depth > index->size.context || index->runs[run].total <= 0))
        run = index->runs[run].suffix;
    return specdec__max_int(run, 0);
}

/* Adds probability to the offer of this token in best[held], or makes one, if it is among the best. Returns how
   many there are. */
static int specdec__ngram_note(specdec__ngram_offer *best, int held, int32_t token, int32_t run, float probability)
{
    specdec__ngram_offer offer;
    int at = 0;

    memset(&offer, 0, sizeof offer);
    while (at < held && best[at].token != token)
        at++;
    if (at < held) {
        offer = best[at];
        offer.probability = offer.probability + probability;
    } else {
        if (held == SPECDEC__NGRAM_WIDTH && !(probability > best[held - 1].probability))
            return held;
        offer.token = token;
        offer.run = run;
        offer.probability = probability;
        at = held < SPECDEC__NGRAM_WIDTH ? held++ : held - 1;
    }
    for (; at > 0 && offer.probability > best[at - 1].probability; at--)
        best[at] = best[at - 1];
    best[at] = offer;
    return held;
}

/* The likeliest tokens after a run: each context predicts by its counts and leaves the share kinds / (total + kinds) to
   the next shorter one (Witten and Bell 1991; PPM method C). Returns how many are in best[SPECDEC__NGRAM_WIDTH], best
   first. */
static int specdec__ngram_continue(const specdec__ngram *index, int32_t run, float probability,
                                   specdec__ngram_offer *best)
{
    int held = 0;

    for (; run > 0; run = index->runs[run].suffix) {
        float sum = (float)index->runs[run].total + (float)index->runs[run].kinds;
        int32_t child = index->runs[run].child;
        int scanned;

        if (index->runs[run].total <= 0)
            continue;
        for (scanned = 0; child >= 0 && scanned < SPECDEC__NGRAM_SCAN; scanned++, child = index->runs[child].sibling)
            if (index->runs[child].count > 0)
                held = specdec__ngram_note(best, held, index->runs[child].token, child,
                                           probability * (float)index->runs[child].count / sum);
        probability = probability * (float)index->runs[run].kinds / sum;
    }
    return held;
}

SPECDEC__INLINE int specdec__ngram_before(specdec__ngram_offer a, specdec__ngram_offer b)
{
    return a.probability > b.probability || (!(a.probability < b.probability) && a.order < b.order);
}

/* The heap's root is the best offer. */
#define SPECDEC__NGRAM_ORDER(key, a, b) specdec__ngram_before(b, a)
SPECDEC__HEAP(specdec__ngram_sink, specdec__ngram_offer, void, SPECDEC__NGRAM_ORDER)

/* Puts an offer on the heap. */
static void specdec__ngram_push(specdec__ngram *index, specdec__ngram_offer offer)
{
    int at = index->offer_count++;

    offer.order = index->offer_order++;
    for (; at > 0 && specdec__ngram_before(offer, index->offers[(at - 1) / 2]); at = (at - 1) / 2)
        index->offers[at] = index->offers[(at - 1) / 2];
    index->offers[at] = offer;
}

/* Takes the best offer off the heap. */
static specdec__ngram_offer specdec__ngram_take(specdec__ngram *index)
{
    specdec__ngram_offer best = index->offers[0];

    index->offers[0] = index->offers[--index->offer_count];
    specdec__ngram_sink(index->offers, NULL, index->offer_count, 0);
    return best;
}

/* Offers what may follow a node of the tree, where that is likelier than least. */
static void specdec__ngram_offer_children(specdec__ngram *index, int node, specdec__ngram_offer from, float least)
{
    specdec__ngram_offer best[SPECDEC__NGRAM_WIDTH];
    int i, held = specdec__ngram_continue(index, from.run, from.probability, best);

    for (i = 0; i < held && best[i].probability > least; i++) {
        best[i].run = specdec__ngram_settle(index, best[i].run);
        best[i].parent = node;
        best[i].depth = from.depth + 1;
        specdec__ngram_push(index, best[i]);
    }
}

/* Grows the tree of the at most n likeliest continuations of a reader's text (root included, which stands for its last
   token), of at most d levels, each likelier than least, after contexts of one token or more. tokens[n] and
   probability[n] (of the path from the root, an estimate) go with it; tokens[0] is the caller's. SuffixDecoding (Oliaro
   et al. 2024, arXiv 2411.04975) with bounded contexts. O(n). Errors: SPECDEC_ERROR_ARGUMENT, SPECDEC_ERROR_BUFFER. */
static specdec_result specdec__ngram_propose(specdec__ngram *index, const specdec__ngram_reader *reader,
                                                             specdec_tree *tree, int32_t *tokens, float *probability,
                                                             int n, int d, float least, specdec_error *error)
{
    specdec__ngram_offer offer;
    int k;

    if (!tree || !tree->parents || !tree->ranks || !tokens || !probability || n < 1 || n > index->size.max_nodes ||
        d < 1 || !(least >= 0.0f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an n-gram tree has 1 to %d nodes and at least 1 level",
                             index->size.max_nodes);
    if (n > tree->capacity)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "the tree needs %d nodes, its arrays hold %d", n,
                             tree->capacity);
    memset(&offer, 0, sizeof offer);
    for (k = index->size.context; k > 0 && reader->active[k] < 0; k--)
        continue;
    offer.run = specdec__ngram_settle(index, reader->active[k]);
    offer.probability = 1.0f;
    offer.parent = -1;
    index->offer_count = index->offer_order = 0;
    for (tree->n = 0;; offer = specdec__ngram_take(index)) {
        int node = tree->n++;

        specdec__tree_put(tree, node, offer.parent, node ? specdec__tree_rank(tree, node, offer.parent) : 0);
        probability[node] = offer.probability;
        if (node > 0)
            tokens[node] = offer.token;
        if (offer.depth + 1 < d)
            specdec__ngram_offer_children(index, node, offer, least);
        if (tree->n == n || index->offer_count == 0)
            return SPECDEC_OK;
    }
}

/* --- a file of what was seen -------------------------------------------------------------------------------------- */

/* FNV-1a of 64 bits (Fowler, Noll, Vo), continued from hash. No change of a single byte leaves it as it was. */
static uint64_t specdec__ngram_hash(uint64_t hash, const unsigned char *bytes, size_t count)
{
    while (count--)
        hash = (hash ^ *bytes++) * 0x100000001b3u;
    return hash;
}

#define SPECDEC__NGRAM_HASH 0xcbf29ce484222325u /* of no bytes */

static void specdec__ngram_store_u64(unsigned char *at, uint64_t value)
{
    specdec__store_u32(at, (uint32_t)value);
    specdec__store_u32(at + 4, (uint32_t)(value >> 32));
}

/* The bytes of a file that specdec__ngram_save writes. */
static size_t specdec__ngram_file_size(const specdec__ngram *index)
{
    size_t tokens = (size_t)index->remembered;
    int i;

    for (i = 0; i < index->size.readers; i++)
        if (index->readers[i].length > index->readers[i].from)
            tokens += (size_t)(index->readers[i].length - index->readers[i].from) + 1;
    return SPECDEC__NGRAM_HEAD + tokens * 4 + 8;
}

SPECDEC__FOR_SIZE

/* Writes a live text and its end. Returns where it stopped. */
static unsigned char *specdec__ngram_save_text(const specdec__ngram_reader *reader, unsigned char *to)
{
    int i;

    for (i = reader->from; i < reader->length; i++, to += 4)
        specdec__store_u32(to, (uint32_t)reader->text[i]);
    if (i == reader->from)
        return to;
    specdec__store_u32(to, (uint32_t)SPECDEC__NGRAM_END);
    return to + 4;
}

/* Writes what the index counts, the history and then the live texts, as a file into data[room]. *bytes becomes what
   that takes; with data NULL that is all. All numbers are little-endian:
     8 bytes  "SPECSEEN"
     4        version: 1
     4        count
     8        vocabulary: a fingerprint, by which specdec__ngram_load knows files for another tokenizer
     4 each   count tokens; 0xffffffff is the end of a text
     8        FNV-1a of all bytes before
   O(bytes). Errors: SPECDEC_ERROR_BUFFER. */
static specdec_result specdec__ngram_save(const specdec__ngram *index, uint64_t vocabulary, void *data,
                                                          size_t room, size_t *bytes, specdec_error *error)
{
    unsigned char *file = (unsigned char *)data, *to;
    int i;

    *bytes = specdec__ngram_file_size(index);
    if (!data)
        return SPECDEC_OK;
    if (*bytes > room)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "%zu bytes are needed, there is room for %zu", *bytes, room);
    memcpy(file, "SPECSEEN", 8);
    specdec__store_u32(file + 8, 1);
    specdec__store_u32(file + 12, (uint32_t)((*bytes - SPECDEC__NGRAM_HEAD - 8) / 4));
    specdec__ngram_store_u64(file + 16, vocabulary);
    to = file + SPECDEC__NGRAM_HEAD;
    for (i = 0; i < index->remembered; i++, to += 4)
        specdec__store_u32(to, (uint32_t)*specdec__ngram_past(index, i));
    for (i = 0; i < index->size.readers; i++)
        to = specdec__ngram_save_text(&index->readers[i], to);
    specdec__ngram_store_u64(to, specdec__ngram_hash(SPECDEC__NGRAM_HASH, file, *bytes - 8));
    return SPECDEC_OK;
}

/* Is data[size] a file that specdec__ngram_save wrote for this vocabulary, of so many tokens? */
static specdec_result specdec__ngram_check(const unsigned char *data, size_t size, uint64_t vocabulary, int tokens,
                                           specdec_error *error)
{
    size_t count, i;

    if (size < SPECDEC__NGRAM_HEAD + 8 || memcmp(data, "SPECSEEN", 8) != 0)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "not a file of what was seen");
    if (specdec__load_u32(data + 8) != 1)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "what was seen is of version %u (1 is read)",
                             specdec__load_u32(data + 8));
    count = specdec__load_u32(data + 12);
    if ((size - SPECDEC__NGRAM_HEAD - 8) / 4 != count || size % 4 ||
        specdec__ngram_hash(SPECDEC__NGRAM_HASH, data, size - 8) != specdec__load_u64(data + size - 8))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "the file of what was seen is damaged");
    if (specdec__load_u64(data + 16) != vocabulary)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "what was seen belongs to another vocabulary");
    for (i = 0; i < count; i++) {
        uint32_t token = specdec__load_u32(data + SPECDEC__NGRAM_HEAD + i * 4);

        if (token != (uint32_t)SPECDEC__NGRAM_END && (token >= (uint32_t)tokens || i + 1 == count))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "token %zu of what was seen is out of range", i);
    }
    return SPECDEC_OK;
}

/* Takes what a file of specdec__ngram_save holds into the history, as if these texts ended now: what has no room is
   forgotten, the oldest first. tokens: of the vocabulary. Every byte is checked before any counts. O(size). A file
   that is refused changes nothing. Errors: SPECDEC_ERROR_FORMAT, SPECDEC_ERROR_UNSUPPORTED, SPECDEC_ERROR_MISMATCH;
   SPECDEC_ERROR_ARGUMENT: this index has no history. */
static specdec_result specdec__ngram_load(specdec__ngram *index, uint64_t vocabulary, int tokens,
                                                          const void *data, size_t size, specdec_error *error)
{
    const unsigned char *file = (const unsigned char *)data;
    const size_t room = (size_t)index->size.history;
    specdec_result result = specdec__ngram_check(file, size, vocabulary, tokens, error);
    size_t count, i;

    if (result)
        return result;
    if (!room)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "there is no room for what was seen");
    count = specdec__load_u32(file + 12);
    for (i = count > room ? count - room : 0; i < count; i++) {
        int32_t token = (int32_t)specdec__load_u32(file + SPECDEC__NGRAM_HEAD + i * 4);

        specdec__ngram_make_room(index);
        specdec__ngram_replay(index, token);
        specdec__ngram_remember(index, token);
    }
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED

/* =====================================================================================================================
 * >>draft (private): drafters fill a token tree and never see a verifier. A drafter is a row of functions; what several
 *     propose is merged into one tree.
 *     May call: >>base >>kernel >>op >>text >>model >>kv >>forward >>heads >>sample >>tree >>ngram
 * ================================================================================================================== */

SPECDEC__FOR_SIZE

#define SPECDEC__MAX_CHILDREN 32   /* of a node */
#define SPECDEC__NGRAM_TOKENS 4    /* the longest context of the n-gram drafter */
#define SPECDEC__NGRAM_SHARE 1024  /* tokens of each further text that the index has room for */
#define SPECDEC__NGRAM_LEAST 0.02f /* a continuation is not proposed that is less probable */

enum {
    SPECDEC__DRAFTER_KINDS = SPECDEC_DRAFT_COUNT - SPECDEC_DRAFT_OFF - 1,
    SPECDEC__MAX_DRAFTERS = SPECDEC__DRAFTER_KINDS + 1 /* of an engine: one of each kind, and one that is in no list */
};

/* How tokens are chosen, by target and draft alike: candidates of a row and the noise of its position. */
typedef struct specdec__chooser {
    const specdec__kernels *kernels;
    const specdec_sampling *sampling;
    specdec_candidate *items; /* (vocab) */
} specdec__chooser;

/* What a drafter proposes for one text in a step: a tree of candidates behind the text, the root first. */
typedef struct specdec__proposal {
    int at;               /* which of the engine's texts */
    int32_t *text;        /* (count + levels): tokens so far; drafters may write behind them */
    int count;            /* the root is text[count - 1] */
    const specdec_sampling *sampling; /* of the text */
    int most, levels;     /* nodes and levels, at most, of a tree whose shape the drafter chooses */
    specdec_rule rule;    /* children are drawn as this rule wants them; coupled: by specdec__choose */
    float *distributions; /* (tree size, vocab): for the rules that ask, what the children of a node were drawn from */
    int grows;            /* the tree is extended level by level, else filled */
    specdec_tree tree;
    int32_t *tokens;      /* (capacity): -1 where nothing is proposed */
    int32_t *depth;       /* (capacity): root 0 */
    float *share;         /* (capacity): of a candidate among those behind the same node, by the drafter */
    float *probability;   /* (capacity): of the path from the root */
    int level;            /* where the newest level of a tree that grows begins */
    int ran;              /* candidates that were extended before, the root aside */
    int32_t *chosen;      /* (tree size): candidates to be extended next */
    int32_t *kept;        /* (tree size): candidates that shall be verified, in order; the root is the first of them */
    int kept_count;
    int32_t *place;       /* (capacity): the node of the merged tree that a candidate has become, or -1 */
    double seconds;       /* that this took, without what is not held against the drafter */
} specdec__proposal;

/* What a drafter may need to know when it is made. */
typedef struct specdec__draft_setup {
    const specdec_config *config;    /* defaults filled in */
    const specdec__context *target;
    const specdec__room *room;       /* texts, and how long they are */
    int capacity;                    /* candidates of a proposal, at most */
    int threads;                     /* of the pool, that its model keeps busy */
} specdec__draft_setup;

typedef struct specdec__drafter specdec__drafter;

/* The target has read tokens [from, from + n) of a text. */
typedef struct specdec__heard {
    int at;              /* which of the engine's texts */
    const int32_t *text; /* (count) what is known of it */
    int count, from, n;
    int first;           /* of the step's nodes the first that is the text's */
    const int *path;     /* (n): which of its nodes became those tokens; NULL: all, in order */
    const float *state;  /* the final one, behind the last of them; NULL: was not computed */
} specdec__heard;

/* A kind of drafter. All functions but fill may be missing (NULL); what that means is said behind "Or". Adding a kind:
   a line in SPECDEC_DRAFTERS, above, and in this section its functions and their row. */
typedef struct specdec__drafter_kind {
    size_t source;   /* of its model: a specdec_source, by its place in specdec_config; 0: it needs none */
    int draws;       /* children are drawn from a distribution if a rule of rejection wants that */
    int size, depth; /* of its trees, when it drafts alone and the caller does not say */
    /* Takes its state from an arena, which may only count. Or: it has none. */
    specdec_result (*init)(specdec__drafter *drafter, const specdec__draft_setup *setup, specdec__arena *arena,
                           specdec_error *error);
    /* Proposes a token for each node of proposal->tree, whose levels lie one behind the other. A drafter that costs
       nothing also chooses the tree, its likeliest nodes first, and says how probable their paths are. */
    specdec_result (*fill)(specdec__drafter *drafter, specdec__proposal *proposal, specdec_error *error);
    /* Appends what may follow each of proposal->chosen[count], with its shares. The root comes first, alone; a
       candidate comes once, after its parent. Or: its trees do not grow. */
    specdec_result (*extend)(specdec__drafter *drafter, specdec__proposal *proposal, int count, specdec_error *error);
    /* path (count): which of its candidates were accepted, the root aside. Or: it reads them in the text. */
    void (*commit)(specdec__drafter *drafter, specdec__proposal *proposal, const int32_t *path, int count);
    /* Text number `at`, unchanged as yet, will be cut to its first length tokens. Or: it remembers none. */
    void (*truncate)(specdec__drafter *drafter, int at, const int32_t *text, int length);
    /* Text number `at`, of which nothing is remembered, begins with the first length tokens of text number `of`. Or: it
       finds out by reading. */
    void (*share)(specdec__drafter *drafter, int at, int of, int length);
    /* Text number `at` has ended; its place will be another text's. Or: as if it were cut to nothing. */
    void (*end)(specdec__drafter *drafter, int at, const int32_t *text);
    /* What a level costs, in steps of the target; a guess until one was timed. Or: nothing: it can always be asked. */
    double (*cost)(const specdec__drafter *drafter, const specdec__model *target);
    /* How many of the first count tokens of text number `at` it has not read. Or: it need not read any. */
    int (*behind)(const specdec__drafter *drafter, int at, int count);
    /* Reads the first count tokens of the proposal's text, so that fewer are left for later. Or: it reads fast. */
    specdec_result (*read)(specdec__drafter *drafter, specdec__proposal *proposal, int count, specdec_error *error);
    /* Whether it can propose behind the first count tokens of text number `at`. Or: always. */
    int (*ready)(const specdec__drafter *drafter, int at, int count);
    /* Hears what the target has read, with its states, those of drafter->taps included. Tokens come in order; some come
       again. Or: it does not look at states. */
    specdec_result (*follow)(specdec__drafter *drafter, const specdec__heard *heard, specdec_error *error);
    /* Of how many tokens of text number `at` it has heard: the next one is needed. Or: it needs the last alone. */
    int (*heard)(const specdec__drafter *drafter, int at);
    /* Drafts instead of this kind with a file that holds layers. Or: there is but one kind of file. */
    const struct specdec__drafter_kind *layers;
} specdec__drafter_kind;

struct specdec__drafter {
    const specdec__drafter_kind *kind;
    specdec_drafting drafting;     /* its name to callers */
    void *state;                   /* of its kind */
    const specdec__model *model;   /* of the kind's source; NULL: it needs none */
    size_t kv_bytes;               /* of its cache */
    int levels;                    /* that it can guess, the root aside */
    specdec__taps taps;            /* states that it wants of the target's steps, or none: out (nodes, count, width) */
    specdec__proposal *proposals;  /* (texts): for this step */
};

/* --- any drafter -------------------------------------------------------------------------------------------------- */

/* Before a step: nothing is proposed but the root, the last of count tokens. */
static void specdec__draft_begin(specdec__proposal *p, int32_t *text, int count, const specdec_sampling *sampling,
                                 specdec_rule rule)
{
    p->text = text;
    p->count = count;
    p->sampling = sampling;
    p->rule = rule;
    specdec__tree_put(&p->tree, 0, -1, 0);
    p->tokens[0] = text[count - 1];
    p->probability[0] = p->share[0] = 1;
    p->depth[0] = p->chosen[0] = p->kept[0] = 0;
    p->tree.n = p->kept_count = 1;
    p->ran = 0;
    p->seconds = 0;
}

/* The first count candidates shall be verified. */
static void specdec__draft_keep(specdec__proposal *p, int count)
{
    for (p->kept_count = 0; p->kept_count < count; p->kept_count++)
        p->kept[p->kept_count] = p->kept_count;
}

/* The tree that is verified. */
typedef struct specdec__merged {
    specdec_tree tree;
    int32_t *tokens;    /* (capacity) */
    signed char *owner; /* (capacity): which drafter was the first to propose a node; -1: the root */
    float *worth;       /* (capacity): how probable it is that a node is accepted; never above its parent's */
} specdec__merged;

/* Merges what the drafters want to have verified of text number `at` into one tree of at most `most` nodes. What an
   earlier drafter has proposed at a node is not doubled; what one drafter proposes twice there, it has drawn twice. */
static void specdec__draft_merge(specdec__merged *m, specdec__drafter *drafters, int count, int at, int32_t root,
                                 int most)
{
    specdec_tree *tree = &m->tree;
    int i, j, k;

    tree->n = 1;
    specdec__tree_put(tree, 0, -1, 0);
    m->tokens[0] = root;
    m->owner[0] = -1;
    for (i = 0; i < count; i++) {
        specdec__proposal *p = &drafters[i].proposals[at];
        const int before = tree->n;

        memset(p->place, -1, (size_t)p->tree.n * sizeof *p->place);
        p->place[0] = 0;
        for (k = 1; k < p->kept_count; k++) {
            const int node = p->kept[k], parent = p->place[p->tree.parents[node]];

            if (parent < 0 || p->tokens[node] < 0)
                continue;
            j = specdec__tree_child(tree, parent, parent + 1);
            while (j < before && m->tokens[j] != p->tokens[node])
                j = specdec__tree_child(tree, parent, j + 1);
            if (j >= before) {
                if (tree->n >= most)
                    continue;
                j = tree->n++;
                specdec__tree_put(tree, j, parent, specdec__tree_rank(tree, j, parent));
                m->tokens[j] = p->tokens[node];
                m->owner[j] = (signed char)i;
            }
            p->place[node] = j;
        }
    }
}

/* The candidate that has become a node of the merged tree; -1: none. */
static int specdec__draft_candidate(const specdec__proposal *p, int node)
{
    int k;

    for (k = 0; k < p->kept_count; k++)
        if (p->place[p->kept[k]] == node)
            return p->kept[k];
    return -1;
}

/* Of a merged tree's guesses, keeps the first `most` that are worth at least `least`. Returns how many these are. */
static int specdec__draft_prune(specdec__merged *m, specdec__drafter *drafters, int count, int at, float least,
                                int most)
{
    int32_t now[SPECDEC__MAX_TREE];
    int i, k, kept = 1;

    now[0] = 0;
    for (i = 1; i < m->tree.n; i++) {
        const int parent = now[m->tree.parents[i]];

        now[i] = -1;
        if (kept > most || parent < 0 || m->worth[i] < least)
            continue;
        specdec__tree_put(&m->tree, kept, parent, specdec__tree_rank(&m->tree, kept, parent));
        m->tokens[kept] = m->tokens[i];
        m->owner[kept] = m->owner[i];
        m->worth[kept] = m->worth[i];
        now[i] = kept++;
    }
    m->tree.n = kept;
    for (i = 0; i < count; i++) {
        specdec__proposal *p = &drafters[i].proposals[at];

        for (k = 0; k < p->kept_count; k++)
            if (p->place[p->kept[k]] >= 0)
                p->place[p->kept[k]] = now[p->place[p->kept[k]]];
    }
    return kept - 1;
}

/* Tells a drafter which of its candidates were accepted: those on the path (length, the root first). */
static void specdec__draft_accept(specdec__drafter *d, specdec__proposal *p, const int32_t *path, int length)
{
    int32_t own[SPECDEC__MAX_TREE];
    int i, node;

    for (i = 1; i < length && (node = specdec__draft_candidate(p, path[i])) >= 0; i++)
        own[i - 1] = node;
    if (d->kind->commit && p->tree.n > 1)
        d->kind->commit(d, p, own, i - 1);
}

/* --- level by level ----------------------------------------------------------------------------------------------- */

/* What drafters have in common that run something once for each level of a tree. Their state begins with this. */
typedef struct specdec__levels {
    specdec__chooser chooser;
    int vocab;         /* tokens that may be proposed: those that target and drafter share */
    int vocab_rows;    /* floats of a row of proposal->distributions: the target's vocabulary */
    const int32_t *ids; /* (id_count) what tokens rows of logits stand for; NULL: all, in order */
    int id_count;
    float *whole;      /* (vocab) a row of logits with all tokens, where rows have fewer */
    int32_t *nodes;    /* (texts, capacity): the place among what was run of a candidate, or -1 */
    int capacity;
    const float *logits; /* rows of what was run last, `stride` floats apart */
    size_t stride;
    /* Makes ready for a text's proposal; row 0 becomes that of the root. */
    specdec_result (*begin)(specdec__drafter *drafter, const specdec__proposal *proposal, specdec_error *error);
    /* Runs candidates[count], of one level, which get the places from `from` on; row i is that of candidates[i]. */
    specdec_result (*run)(specdec__drafter *drafter, const specdec__proposal *proposal, const int32_t *candidates,
                          int from, int count, specdec_error *error);
} specdec__levels;

/* The k best tokens at a position, best first, by logits (vocab); recent (recent_count) is the text before it. The
   first is what plain decoding writes. */
static int specdec__choose(const specdec__chooser *chooser, const float *logits, int vocab, const int32_t *recent,
                           int recent_count,
                           int k, specdec_candidate *best)
{
    const specdec_sampling *s = chooser->sampling;
    specdec__row row;

    if (!(s->temperature > 0) && !specdec__sample_alters(s))
        return specdec__sample_greedy(chooser->kernels, logits, vocab, k, best);
    if (specdec__row_init(&row, chooser->kernels, s, chooser->items, logits, vocab, recent, recent_count))
        return 0;
    return specdec__row_top(&row, s->seed, (uint64_t)recent_count, k, best);
}

/* Writes the tokens on the path from the root (excluded) to a node behind the text. Returns the length of text and
   path. */
static int specdec__draft_path(const specdec__proposal *p, int node)
{
    int length = p->count + p->depth[node], at;

    for (at = node; at > 0; at = p->tree.parents[at])
        p->text[p->count + p->depth[at] - 1] = p->tokens[at];
    return length;
}

SPECDEC__INLINE int32_t *specdec__draft_nodes(const specdec__levels *m, const specdec__proposal *p)
{
    return m->nodes + (size_t)p->at * (size_t)m->capacity;
}

/* Row i of what was run last, with all tokens: those that a short vocabulary lacks are never chosen. */
static const float *specdec__draft_row(const specdec__levels *m, int i)
{
    const float *row = m->logits + (size_t)i * m->stride;
    int j;

    if (!m->ids)
        return row;
    for (j = 0; j < m->vocab; j++)
        m->whole[j] = specdec__float_from_bits(0xff800000u);
    for (j = 0; j < m->id_count; j++)
        if (m->ids[j] < m->vocab)
            m->whole[m->ids[j]] = row[j];
    return m->whole;
}

/* Draws count children for a rejection rule, and notes the distribution they come from. Returns how many there are. */
static int specdec__draft_draw(specdec__levels *m, const specdec__proposal *p, int node, const float *logits,
                               int length, int count, specdec_candidate *best)
{
    const specdec_sampling *s = m->chooser.sampling;
    float *q = p->distributions + (size_t)node * (size_t)m->vocab_rows;
    uint64_t seed = s->seed ^ 0x6a09e667f3bcc909u; /* the draft's noise must not be the target's */
    specdec__row row;
    int i;

    if (specdec__row_init(&row, m->chooser.kernels, s, m->chooser.items, logits, m->vocab, p->text, length))
        return 0;
    specdec__row_weights(&row, q);
    if (p->rule == SPECDEC_RULE_SEQUOIA)
        return specdec__row_top(&row, seed, (uint64_t)length, count, best);
    for (i = 0; i < count; i++)
        specdec__row_top(&row, seed + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u, (uint64_t)length, 1, &best[i]);
    return count;
}

/* The most probable tokens of the draft, penalties included; for the rule that lets the target draw for itself. */
static int specdec__draft_likeliest(specdec__levels *m, const specdec__proposal *p, const float *logits,
                                    int length, int count, specdec_candidate *best)
{
    specdec_candidates candidates;

    candidates.items = m->chooser.items;
    if (specdec_sample_filter(&candidates, m->chooser.sampling, logits, m->vocab, p->text, length, NULL))
        return 0;
    candidates.greedy = 1;
    return specdec_sample_top(&candidates, 0, 0, count, best);
}

/* Chooses the children of a node from a row of what was run. */
static void specdec__draft_children(specdec__levels *m, const specdec__proposal *p, int node, int at)
{
    const specdec_tree *tree = &p->tree;
    const float *logits = specdec__draft_row(m, at);
    specdec_candidate best[SPECDEC__MAX_CHILDREN];
    int first = specdec__tree_child(tree, node, node + 1), count = 0, i, length = specdec__draft_path(p, node), found;

    for (i = first; i < tree->n; i = specdec__tree_child(tree, node, i + 1))
        count++;
    found = specdec__min_int(count, SPECDEC__MAX_CHILDREN);
    found = !SPECDEC__VERIFIERS || p->rule == SPECDEC_RULE_COUPLED ? specdec__choose(&m->chooser, logits, m->vocab,
                                                                                     p->text, length, found, best)
                                          : specdec__draft_draw(m, p, node, logits, length, found, best);
    for (i = first; i < tree->n; i = specdec__tree_child(tree, node, i + 1))
        p->tokens[i] = tree->ranks[i] <= found ? best[tree->ranks[i] - 1].token : -1;
}

/* Appends the best tokens behind a node, with their shares of exp(logit), noise included: what the target's noise will
   choose from, too. Not for rules that ask for children of a certain distribution. */
static void specdec__draft_offer(specdec__levels *m, specdec__proposal *p, int node, int row)
{
    specdec_candidate best[SPECDEC__OFFERS];
    const float *logits = specdec__draft_row(m, row);
    const int length = specdec__draft_path(p, node);
    const int most = specdec__min_int(SPECDEC__OFFERS, p->tree.capacity - p->tree.n);
    float weight[SPECDEC__OFFERS], total = 0;
    int found, i;

    if (p->rule == SPECDEC_RULE_TOP_K)
        found = specdec__draft_likeliest(m, p, logits, length, most, best);
    else
        found = specdec__choose(&m->chooser, logits, m->vocab, p->text, length, most, best);
    for (i = 0; i < found; i++) {
        float below = best[i].logit - best[0].logit;

        weight[i] = i && !(below > -80) ? 0 : specdec__exp(i ? below : 0);
        total += weight[i];
    }
    for (i = 0; i < found; i++) {
        int at = p->tree.n++;

        specdec__tree_put(&p->tree, at, node, i + 1);
        p->tokens[at] = best[i].token;
        p->depth[at] = p->depth[node] + 1;
        p->share[at] = weight[i] / total;
        specdec__draft_nodes(m, p)[at] = -1;
    }
}

/* Runs candidates, which get the places from `from` on. */
static specdec_result specdec__draft_run(specdec__drafter *d, const specdec__proposal *p, const int32_t *candidates,
                                         int from, int count, specdec_error *error)
{
    specdec__levels *m = (specdec__levels *)d->state;
    int i;

    for (i = 0; i < count; i++)
        specdec__draft_nodes(m, p)[candidates[i]] = from + i;
    return m->run(d, p, candidates, from, count, error);
}

/* Row 0 becomes the root's, and nothing else has been run. */
static specdec_result specdec__draft_root(specdec__drafter *d, const specdec__proposal *p, specdec_error *error)
{
    specdec__levels *m = (specdec__levels *)d->state;

    memset(specdec__draft_nodes(m, p), -1, (size_t)p->tree.n * sizeof *m->nodes);
    m->chooser.sampling = p->sampling;
    return m->begin(d, p, error);
}

/* All nodes of a level that have children run together. */
static specdec_result specdec__draft_levels_fill(specdec__drafter *d, specdec__proposal *p, specdec_error *error)
{
    specdec__levels *m = (specdec__levels *)d->state;
    const specdec_tree *tree = &p->tree;
    specdec_result result = specdec__draft_root(d, p, error);
    int32_t level[SPECDEC__MAX_TREE];
    int from, to, i, count, n = 0;

    if (result)
        return result;
    for (i = 1; i < tree->n; i++)
        p->tokens[i] = -1;
    specdec__draft_children(m, p, 0, 0);
    for (from = 1; from < tree->n && p->depth[from] < d->levels; from = to, n += count) {
        count = 0;
        for (to = from; to < tree->n && p->depth[to] == p->depth[from]; to++)
            if (p->tokens[to] >= 0 && specdec__tree_child(tree, to, to + 1) < tree->n)
                level[count++] = to;
        if (count && (result = specdec__draft_run(d, p, level, n, count, error)) != SPECDEC_OK)
            return result;
        for (i = 0; i < count; i++)
            specdec__draft_children(m, p, level[i], i);
    }
    return SPECDEC_OK;
}

/* The root, or all chosen candidates, in one step. */
static specdec_result specdec__draft_levels_extend(specdec__drafter *d, specdec__proposal *p, int count,
                                                   specdec_error *error)
{
    specdec__levels *m = (specdec__levels *)d->state;
    specdec_result result = p->chosen[0] == 0 ? specdec__draft_root(d, p, error)
                                              : specdec__draft_run(d, p, p->chosen, p->ran, count, error);
    int i;

    for (i = 0; !result && i < count; i++)
        specdec__draft_offer(m, p, p->chosen[i], i);
    return result;
}

/* Candidates become nodes of a drafter's context, from number `from` on. */
static void specdec__levels_put(const specdec__levels *m, specdec__context *c, const specdec__proposal *p,
                                const int32_t *candidates, int from, int count)
{
    int i;

    for (i = 0; i < count; i++) {
        const int parent = p->tree.parents[candidates[i]];

        c->tokens[from + i] = p->tokens[candidates[i]];
        c->parents[from + i] = parent ? specdec__draft_nodes(m, p)[parent] : -1;
    }
}

/* Refuses a model of another vocabulary than the target's. */
static specdec_result specdec__levels_vocabulary(const specdec__drafter *d, const specdec__model *target,
                                                 const specdec__arena *arena, specdec_error *error)
{
    uint32_t different = 0;

    if (!arena->base || specdec__vocab_compare(&target->vocab, &d->model->vocab, &different) !=
                            SPECDEC__VOCAB_DIFFERENT)
        return SPECDEC_OK;
    return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft model has another vocabulary: %d tokens, the "
                         "target %d; they first differ at token %u", d->model->vocab_size, target->vocab_size,
                         different);
}

/* Takes what a drafter of a model needs for all that. stride: floats of a row of its logits. */
static void specdec__levels_init(specdec__levels *m, const specdec__drafter *d, const specdec__draft_setup *setup,
                                 specdec__arena *arena)
{
    const specdec__model *target = setup->target->model;

    m->vocab = specdec__min_int(target->vocab_size, d->model->vocab_size);
    m->vocab_rows = target->vocab_size;
    m->chooser.kernels = setup->target->kernels;
    m->chooser.items = SPECDEC__TAKE(arena, specdec_candidate, m->vocab);
    m->ids = d->model->ids;
    m->id_count = d->model->id_count;
    if (m->id_count)
        m->whole = SPECDEC__TAKE(arena, float, m->vocab);
    m->capacity = setup->capacity;
    m->nodes = SPECDEC__TAKE(arena, int32_t, (size_t)setup->room->views * (size_t)m->capacity);
}

/* --- the draft model ---------------------------------------------------------------------------------------------- */

typedef struct specdec__draft_model {
    specdec__levels levels;
    specdec__context context;
    specdec__view *views; /* (texts) */
} specdec__draft_model;

/* Runs committed text through the draft model, so that its cache holds all of it. */
static specdec_result specdec__draft_model_begin(specdec__drafter *d, const specdec__proposal *p, specdec_error *error)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;
    specdec__context *c = &m->context;
    specdec__view *view = &m->views[p->at];
    const specdec__rows rows = specdec__forward_wanted(p->count - 1);

    if (view->length >= p->count)
        specdec__view_truncate(view, &c->kv, p->count - 1);
    return specdec__forward_text(c, view, p->text, p->count, c->most, &rows, NULL, error);
}

static specdec_result specdec__draft_model_run(specdec__drafter *d, const specdec__proposal *p,
                                               const int32_t *candidates, int from, int count, specdec_error *error)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;
    specdec__context *c = &m->context;
    specdec__batch batch;

    specdec__levels_put(&m->levels, c, p, candidates, from, count);
    batch = specdec__forward_alone(c, &m->views[p->at], from, from + count);
    return specdec__forward(c, &batch, error);
}

static void specdec__draft_model_commit(specdec__drafter *d, specdec__proposal *p, const int32_t *path, int count)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;
    const int32_t *nodes = specdec__draft_nodes(&m->levels, p);
    int kept[SPECDEC_TREE_MAX_DEPTH], i;

    for (i = 0; i < count && i < SPECDEC_TREE_MAX_DEPTH && nodes[path[i]] >= 0; i++)
        kept[i] = nodes[path[i]];
    specdec__view_commit(&m->views[p->at], &m->context.kv, kept, i);
}

static void specdec__draft_model_truncate(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;

    (void)text;
    specdec__view_truncate(&m->views[at], &m->context.kv, length);
}

static void specdec__draft_model_share(specdec__drafter *d, int at, int of, int length)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;

    length = specdec__min_int(length, m->views[of].length);
    if (!specdec__view_share(&m->views[at], &m->context.kv, &m->views[of], 0, length))
        specdec__view_truncate(&m->views[at], &m->context.kv, 0);
}

/* A token costs what its weights do. */
static double specdec__draft_model_cost(const specdec__drafter *d, const specdec__model *target)
{
    return (double)d->model->weight_bytes / (double)target->weight_bytes;
}

static int specdec__draft_model_behind(const specdec__drafter *d, int at, int count)
{
    return count - ((const specdec__draft_model *)d->state)->views[at].length;
}

static specdec_result specdec__draft_model_read(specdec__drafter *d, specdec__proposal *p, int count,
                                                specdec_error *error)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;
    const specdec__rows rows = specdec__forward_wanted(count); /* none */

    return specdec__forward_text(&m->context, &m->views[p->at], p->text, count, m->context.most, &rows, NULL, error);
}

static specdec_result specdec__draft_model_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                specdec__arena *arena, specdec_error *error)
{
    specdec__draft_model counted, *m = SPECDEC__TAKE(arena, specdec__draft_model, 1);
    const specdec_config *config = setup->config;
    const specdec__context *target = setup->target;
    const specdec__room *room = setup->room;
    specdec_result result;
    specdec__view view;
    int i;

    d->state = m;
    m = m ? m : &counted;
    if (!specdec__model_writes(d->model))
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft model is a file of heads: %s",
                             specdec__model_name(d->model));
    if ((result = specdec__levels_vocabulary(d, target->model, arena, error)) != SPECDEC_OK)
        return result;
    specdec__levels_init(&m->levels, d, setup, arena);
    specdec__context_init(&m->context, d->model, NULL, target->kernels, target->pool, setup->threads, target->kv.type,
                          room, config->tree_size, arena);
    m->views = SPECDEC__TAKE(arena, specdec__view, room->views);
    for (i = 0; i < room->views; i++)
        specdec__context_view(m->views ? &m->views[i] : &view, room, arena);
    d->kv_bytes = specdec__kv_bytes(&m->context.kv);
    m->levels.logits = m->context.logits;
    m->levels.stride = (size_t)d->model->output.rows;
    m->levels.begin = specdec__draft_model_begin;
    m->levels.run = specdec__draft_model_run;
    return SPECDEC_OK;
}

static const specdec__drafter_kind specdec__draft_model_kind = {
    offsetof(specdec_config, draft), 1, 8, 5, specdec__draft_model_init, specdec__draft_levels_fill,
    specdec__draft_levels_extend, specdec__draft_model_commit, specdec__draft_model_truncate,
    specdec__draft_model_share, NULL, specdec__draft_model_cost, specdec__draft_model_behind,
    specdec__draft_model_read, NULL, NULL, NULL, NULL};

/* --- heads -------------------------------------------------------------------------------------------------------- */

typedef struct specdec__draft_heads {
    specdec__levels levels;
    specdec__heads heads;
    float *state; /* (texts, embedding): the target's behind a token of each text */
    int *known;   /* (texts): the number of that token; -1: there is none */
    float *inner; /* (1 + tree size, stride of the heads' states): the root's, those of candidates by their places */
} specdec__draft_heads;

static float *specdec__draft_heads_state(const specdec__draft_heads *m, int at)
{
    return m->state + (size_t)at * (size_t)m->heads.context.model->embedding;
}

/* Runs a level whose inputs lie in heads.input, and keeps the states, which get the places from `from` on. */
static specdec_result specdec__draft_heads_level(specdec__draft_heads *m, int level, const int32_t *tokens, int from,
                                                 int count, specdec_error *error)
{
    const size_t stride = (size_t)specdec__forward_stride(m->heads.context.model->feed_forward);
    specdec_result result = specdec__heads_run(&m->heads, level, tokens, count, error);

    if (!result)
        memcpy(m->inner + (size_t)from * stride, m->heads.inner, (size_t)count * stride * sizeof *m->inner);
    return result;
}

/* The input of row i of a level: the target's state. */
static void specdec__draft_heads_first(specdec__draft_heads *m, int at, int i)
{
    const specdec__model *model = m->heads.context.model;

    memcpy(m->heads.input + (size_t)i * (size_t)specdec__forward_stride(model->embedding),
           specdec__draft_heads_state(m, at), (size_t)model->embedding * sizeof(float));
}

static specdec_result specdec__draft_heads_begin(specdec__drafter *d, const specdec__proposal *p, specdec_error *error)
{
    specdec__draft_heads *m = (specdec__draft_heads *)d->state;

    specdec__draft_heads_first(m, p->at, 0);
    m->levels.stride = (size_t)specdec__heads_rows(d->model);
    return specdec__draft_heads_level(m, 0, &p->tokens[0], 0, 1, error);
}

/* Heads that do not follow each other say the same behind all candidates of a level. */
static specdec_result specdec__draft_heads_run(specdec__drafter *d, const specdec__proposal *p,
                                               const int32_t *candidates, int from, int count, specdec_error *error)
{
    specdec__draft_heads *m = (specdec__draft_heads *)d->state;
    const size_t stride = (size_t)specdec__forward_stride(d->model->feed_forward);
    int32_t tokens[SPECDEC__MAX_TREE];
    int i;

    if (!d->model->speculator->follow) {
        specdec__draft_heads_first(m, p->at, 0);
        m->levels.stride = 0;
        return specdec__draft_heads_level(m, p->depth[candidates[0]], &p->tokens[0], 0, 1, error);
    }
    for (i = 0; i < count; i++) {
        const int parent = p->tree.parents[candidates[i]];
        const int place = parent ? 1 + specdec__draft_nodes(&m->levels, p)[parent] : 0;

        tokens[i] = p->tokens[candidates[i]];
        memcpy(m->heads.input + (size_t)i * stride, m->inner + (size_t)place * stride, stride * sizeof(float));
    }
    return specdec__draft_heads_level(m, p->depth[candidates[0]], tokens, 1 + from, count, error);
}

static void specdec__draft_heads_truncate(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__draft_heads *m = (specdec__draft_heads *)d->state;

    (void)text;
    if (m->known[at] >= length)
        m->known[at] = -1;
}

static void specdec__draft_heads_share(specdec__drafter *d, int at, int of, int length)
{
    specdec__draft_heads *m = (specdec__draft_heads *)d->state;

    m->known[at] = m->known[of] < length ? m->known[of] : -1;
    memcpy(specdec__draft_heads_state(m, at), specdec__draft_heads_state(m, of),
           (size_t)d->model->embedding * sizeof(float));
}

static double specdec__draft_heads_cost(const specdec__drafter *d, const specdec__model *target)
{
    return (double)d->model->weight_bytes / d->model->layers / (double)target->weight_bytes;
}

/* The state behind the token before the root. */
static int specdec__draft_heads_ready(const specdec__drafter *d, int at, int count)
{
    const specdec__draft_heads *m = (const specdec__draft_heads *)d->state;

    return m->known[at] >= 0 && m->known[at] == count - 2;
}

static specdec_result specdec__draft_heads_follow(specdec__drafter *d, const specdec__heard *heard,
                                                  specdec_error *error)
{
    specdec__draft_heads *m = (specdec__draft_heads *)d->state;

    (void)error;
    if (!heard->state)
        return SPECDEC_OK;
    m->known[heard->at] = heard->from + heard->n - 1;
    memcpy(specdec__draft_heads_state(m, heard->at), heard->state, (size_t)d->model->embedding * sizeof(float));
    return SPECDEC_OK;
}

static specdec_result specdec__draft_heads_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                specdec__arena *arena, specdec_error *error)
{
    specdec__draft_heads counted, *m = SPECDEC__TAKE(arena, specdec__draft_heads, 1);
    const specdec__model *target = setup->target->model, *model = d->model;
    const int views = setup->room->views, size = setup->config->tree_size;
    int i;

    d->state = m;
    m = m ? m : &counted;
    if (model->vocab_size != target->vocab_size || model->embedding != target->embedding)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH,
                             "the heads are for states of %d and a vocabulary of %d, the target has %d and %d",
                             model->embedding, model->vocab_size, target->embedding, target->vocab_size);
    d->levels = model->guesses;
    specdec__levels_init(&m->levels, d, setup, arena);
    specdec__heads_init(&m->heads, model, setup->target, setup->threads, size, arena);
    m->state = SPECDEC__TAKE(arena, float, (size_t)views * (size_t)model->embedding);
    m->known = SPECDEC__TAKE(arena, int, views);
    m->inner = SPECDEC__TAKE(arena, float,
                             ((size_t)size + 1) * (size_t)specdec__forward_stride(model->feed_forward));
    for (i = 0; m->known && i < views; i++)
        m->known[i] = -1;
    if (m->state) /* the trial reads it before anything was told */
        memset(m->state, 0, (size_t)views * (size_t)model->embedding * sizeof *m->state);
    m->levels.logits = m->heads.logits;
    m->levels.begin = specdec__draft_heads_begin;
    m->levels.run = specdec__draft_heads_run;
    return SPECDEC_OK;
}

/* --- a layer that reads the target's states ------------------------------------------------------------------------

   EAGLE-3. Pair p is the target's state behind token p and token p + 1: the layer's guess is token p + 2. Pairs of the
   text are run once their states have been heard of, so the cache holds nothing but what a run over the whole text
   would put there; behind the root, the layer's own states stand for the target's. */

#define SPECDEC__DRAFT_STATES 32 /* of a text that are kept: most wait until there is something to draft */

typedef struct specdec__draft_pairs {
    specdec__view view; /* pairs that have been run */
    float *states;      /* (SPECDEC__DRAFT_STATES, specdec__forward_read_stride): of `count` pairs from `from` on */
    int from, count;    /* from <= view.length <= from + count: all pairs whose states were heard of */
} specdec__draft_pairs;

typedef struct specdec__draft_layer {
    specdec__levels levels;
    specdec__context context;
    specdec__draft_pairs *texts; /* (texts) */
    float *inner;                /* (1 + tree size, embedding): the layer's state of the root, of candidates by place */
} specdec__draft_layer;

static float *specdec__draft_layer_inner(const specdec__draft_layer *m, int place)
{
    return m->inner + (size_t)place * (size_t)m->context.model->embedding;
}

/* Keeps the states of nodes that have just been run, from this place on. */
static void specdec__draft_layer_keep(const specdec__draft_layer *m, int row, int place, int count)
{
    const specdec__context *c = &m->context;
    int i;

    for (i = 0; i < count; i++)
        memcpy(specdec__draft_layer_inner(m, place + i), c->x + (size_t)(row + i) * (size_t)c->e,
               (size_t)c->model->embedding * sizeof *c->x);
}

/* Runs the pairs of a text before number `end`; for the logits of the last, if they are wanted. */
static specdec_result specdec__draft_layer_read(specdec__draft_layer *m, int at, const int32_t *text, int end,
                                                int wanted, specdec_error *error)
{
    specdec__draft_pairs *t = &m->texts[at];
    specdec__rows rows = specdec__forward_wanted(wanted ? end - 1 : end);

    rows.reads = t->states;
    rows.reads_from = t->from;
    return specdec__forward_text(&m->context, &t->view, text + 1, end, m->context.most, &rows, NULL, error);
}

/* The trial asks before anything was heard: of states of zeros. */
static specdec_result specdec__draft_layer_begin(specdec__drafter *d, const specdec__proposal *p, specdec_error *error)
{
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__view *view = &m->texts[p->at].view;
    const int root = specdec__max_int(p->count - 2, 0);
    specdec_result result;

    if (view->length > root)
        specdec__view_truncate(view, &m->context.kv, root);
    result = specdec__draft_layer_read(m, p->at, p->text, root + 1, 1, error);
    if (!result)
        specdec__draft_layer_keep(m, m->context.n - 1, 0, 1);
    return result;
}

static specdec_result specdec__draft_layer_run(specdec__drafter *d, const specdec__proposal *p,
                                               const int32_t *candidates, int from, int count, specdec_error *error)
{
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__context *c = &m->context;
    specdec__batch batch;
    specdec_result result;
    int i;

    specdec__levels_put(&m->levels, c, p, candidates, from, count);
    for (i = 0; i < count; i++)
        memcpy(c->x + (size_t)i * (size_t)c->e, specdec__draft_layer_inner(m, 1 + c->parents[from + i]),
               (size_t)d->model->embedding * sizeof *c->x);
    batch = specdec__forward_alone(c, &m->texts[p->at].view, from, from + count);
    result = specdec__forward(c, &batch, error);
    if (!result)
        specdec__draft_layer_keep(m, 0, 1 + from, count);
    return result;
}

/* The state behind the last token that is left is needed again, unless it is kept. */
static void specdec__draft_layer_truncate(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__draft_pairs *t = &m->texts[at];

    (void)text;
    specdec__view_truncate(&t->view, &m->context.kv, specdec__max_int(length - 1, 0));
    t->count = specdec__min_int(t->count, length - t->from);
    if (t->view.length >= t->from)
        return;
    t->from = t->view.length;
    t->count = 0;
}

static void specdec__draft_layer_share(specdec__drafter *d, int at, int of, int length)
{
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__draft_pairs *t = &m->texts[at];
    const specdec__draft_pairs *other = &m->texts[of];
    const int pairs = specdec__min_int(specdec__max_int(length - 1, 0), other->view.length);

    if (!specdec__view_share(&t->view, &m->context.kv, &other->view, 0, pairs))
        specdec__view_truncate(&t->view, &m->context.kv, 0);
    t->from = t->view.length;
    t->count = 0;
    if (other->from > t->from || other->from >= length)
        return;
    t->from = other->from;
    t->count = specdec__min_int(other->count, length - other->from);
    memcpy(t->states, other->states,
           (size_t)t->count * (size_t)specdec__forward_read_stride(d->model) * sizeof *t->states);
}

/* A token costs what the weights do that it passes. */
static double specdec__draft_layer_cost(const specdec__drafter *d, const specdec__model *target)
{
    const size_t borrowed = d->model->output.type ? 0 : target->output.row_bytes * (size_t)target->output.rows;

    return (double)(d->model->weight_bytes + borrowed) / (double)target->weight_bytes;
}

/* Whether the root's state is kept, and all before it have been heard of. */
static int specdec__draft_layer_ready(const specdec__drafter *d, int at, int count)
{
    const specdec__draft_pairs *t = &((const specdec__draft_layer *)d->state)->texts[at];

    return count >= 2 && t->from <= count - 2 && t->from + t->count >= count - 1;
}

static int specdec__draft_layer_heard(const specdec__drafter *d, int at)
{
    const specdec__draft_pairs *t = &((const specdec__draft_layer *)d->state)->texts[at];

    return t->from + t->count;
}

/* Forgets states of pairs that have been run, but the last of them; if there is none, all are run first whose tokens
   are known. */
static specdec_result specdec__draft_layer_forget(specdec__draft_layer *m, const specdec__heard *heard,
                                                  specdec_error *error)
{
    specdec__draft_pairs *t = &m->texts[heard->at];
    const size_t stride = (size_t)specdec__forward_read_stride(m->context.model);
    const int end = specdec__min_int(t->from + t->count, heard->count - 1);
    specdec_result result;
    int gone;

    if (t->view.length <= t->from + 1 &&
        (result = specdec__draft_layer_read(m, heard->at, heard->text, end, 0, error)) != SPECDEC_OK)
        return result;
    gone = t->view.length - 1 - t->from;
    t->from += gone;
    t->count -= gone;
    memmove(t->states, t->states + (size_t)gone * stride, (size_t)t->count * stride * sizeof *t->states);
    return SPECDEC_OK;
}

/* Keeps the states that are new. A text some of whose states were missed is not drafted for, until it is cut. */
static specdec_result specdec__draft_layer_follow(specdec__drafter *d, const specdec__heard *heard,
                                                  specdec_error *error)
{
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__draft_pairs *t = &m->texts[heard->at];
    const specdec__reads *reads = &d->model->reads;
    const int width = reads->count * reads->width;
    int i;

    for (i = t->from + t->count - heard->from; i >= 0 && i < heard->n; i++, t->count++) {
        const int node = heard->first + (heard->path ? heard->path[i] : i);
        const float *from = d->taps.out + (size_t)node * (size_t)width;
        specdec_result result = t->count < SPECDEC__DRAFT_STATES ? SPECDEC_OK
                                                                 : specdec__draft_layer_forget(m, heard, error);
        float *to = t->states + (size_t)t->count * (size_t)specdec__forward_read_stride(d->model);

        if (result)
            return result;
        if (reads->norm)
            m->context.kernels->norm(from, reads->norm, d->model->epsilon, width, 0, width, to);
        else
            memcpy(to, from, (size_t)width * sizeof *to);
    }
    return SPECDEC_OK;
}

/* Does a model read the states of this target? */
static specdec_result specdec__draft_layer_check(const specdec__model *m, const specdec__model *target,
                                                 specdec_error *error)
{
    int i;

    if (specdec__model_writes(m))
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the file of heads holds a language model: %s",
                             specdec__model_name(m));
    if (m->reads.width != target->embedding)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft reads states of %d, the target has states of %d",
                             m->reads.width, target->embedding);
    for (i = 0; i < m->reads.count; i++)
        if (m->reads.layers[i] > target->layers)
            return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft reads states after %d layers, the target "
                                 "has %d", m->reads.layers[i], target->layers);
    if (m->embedding != target->embedding && !(m->token_embedding.type && m->output.type))
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft, %d wide, has no %s of its own, and the "
                             "target's is for %d", m->embedding, m->output.type ? "token_embd.weight" : "output.weight",
                             target->embedding);
    return SPECDEC_OK;
}

static specdec_result specdec__draft_layer_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                specdec__arena *arena, specdec_error *error)
{
    specdec__draft_layer counted, *m = SPECDEC__TAKE(arena, specdec__draft_layer, 1);
    const specdec__context *target = setup->target;
    const specdec__model *model = d->model;
    const size_t stride = (size_t)specdec__forward_read_stride(model), size = (size_t)setup->config->tree_size;
    specdec_result result = specdec__draft_layer_check(model, target->model, error);
    specdec__draft_pairs unused, *t;
    int i;

    d->state = m;
    m = m ? m : &counted;
    if (result || (result = specdec__levels_vocabulary(d, target->model, arena, error)) != SPECDEC_OK)
        return result;
    specdec__levels_init(&m->levels, d, setup, arena);
    specdec__context_init(&m->context, model, target->model, target->kernels, target->pool, setup->threads,
                          target->kv.type, setup->room, (int)size, arena);
    d->kv_bytes = specdec__kv_bytes(&m->context.kv);
    d->taps.layers = model->reads.layers;
    d->taps.count = model->reads.count;
    d->taps.out = SPECDEC__TAKE(arena, float, (size_t)target->most * stride);
    m->inner = SPECDEC__TAKE(arena, float, (1 + size) * (size_t)model->embedding);
    m->texts = SPECDEC__TAKE(arena, specdec__draft_pairs, setup->room->views);
    for (i = 0; i < setup->room->views; i++) {
        t = m->texts ? &m->texts[i] : &unused;
        specdec__context_view(&t->view, setup->room, arena);
        t->states = SPECDEC__TAKE(arena, float, SPECDEC__DRAFT_STATES * stride);
    }
    m->levels.logits = m->context.logits;
    m->levels.stride = (size_t)m->context.output->rows;
    m->levels.begin = specdec__draft_layer_begin;
    m->levels.run = specdec__draft_layer_run;
    return SPECDEC_OK;
}

static const specdec__drafter_kind specdec__draft_layer_kind = {
    offsetof(specdec_config, heads), 1, 8, 4, specdec__draft_layer_init, specdec__draft_levels_fill,
    specdec__draft_levels_extend, NULL, specdec__draft_layer_truncate, specdec__draft_layer_share, NULL,
    specdec__draft_layer_cost, NULL, NULL, specdec__draft_layer_ready, specdec__draft_layer_follow,
    specdec__draft_layer_heard, NULL};

static const specdec__drafter_kind specdec__draft_heads_kind = {
    offsetof(specdec_config, heads), 1, 8, 4, specdec__draft_heads_init, specdec__draft_levels_fill,
    specdec__draft_levels_extend, NULL, specdec__draft_heads_truncate, specdec__draft_heads_share, NULL,
    specdec__draft_heads_cost, NULL, NULL, specdec__draft_heads_ready, specdec__draft_heads_follow, NULL,
    &specdec__draft_layer_kind};

/* --- n-grams ------------------------------------------------------------------------------------------------------ */

/* The likeliest continuations of the text by what it and the others hold already. */
static specdec_result specdec__draft_ngram_fill(specdec__drafter *d, specdec__proposal *p, specdec_error *error)
{
    specdec__ngram *index = (specdec__ngram *)d->state;
    specdec__ngram_reader *reader = &index->readers[p->at];

    specdec__ngram_extend(index, reader, p->text, p->count);
    return specdec__ngram_propose(index, reader, &p->tree, p->tokens, p->probability, p->most, p->levels,
                                  SPECDEC__NGRAM_LEAST, error);
}

static void specdec__draft_ngram_truncate(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__ngram *index = (specdec__ngram *)d->state;

    if (index->readers[at].length > length)
        specdec__ngram_rewind(index, &index->readers[at], text, length);
}

static void specdec__draft_ngram_share(specdec__drafter *d, int at, int of, int length)
{
    specdec__ngram *index = (specdec__ngram *)d->state;

    (void)of;
    specdec__ngram_begin(index, &index->readers[at], length);
}

static void specdec__draft_ngram_end(specdec__drafter *d, int at, const int32_t *text)
{
    specdec__ngram *index = (specdec__ngram *)d->state;

    specdec__ngram_end(index, &index->readers[at], text);
}

static int specdec__draft_ngram_behind(const specdec__drafter *d, int at, int count)
{
    return count - ((const specdec__ngram *)d->state)->readers[at].length;
}

static specdec_result specdec__draft_ngram_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                specdec__arena *arena, specdec_error *error)
{
    const int length = specdec__max_int(setup->room->length, 64), history = setup->config->history;
    const int most = (1 << 28) / (SPECDEC__NGRAM_TOKENS + 1);
    specdec__ngram counted, *index = SPECDEC__TAKE(arena, specdec__ngram, 1);
    specdec__ngram_size size;

    size.context = SPECDEC__NGRAM_TOKENS;
    size.max_nodes = setup->config->tree_size;
    size.readers = setup->room->views;
    size.history = history;
    size.capacity = length + (size.readers - 1) * specdec__min_int(length, SPECDEC__NGRAM_SHARE);
    size.capacity = specdec__min_int(specdec__min_int(size.capacity, most) + history, most) * (size.context + 1);
    d->state = index;
    return specdec__ngram_lay_out(index ? index : &counted, arena, &size, error);
}

/* By what a file of what was seen is known to be for this vocabulary: a hash of its tokens' texts. */
static uint64_t specdec__draft_ngram_fingerprint(const specdec__vocab *vocab)
{
    uint64_t hash = SPECDEC__NGRAM_HASH;
    uint32_t id;

    for (id = 0; id < vocab->count; id++) {
        specdec__bytes text = specdec__vocab_text(vocab, id);

        hash = specdec__ngram_hash(hash, text.data - 8, text.size + 8); /* its length stands before it */
    }
    return hash;
}

static const specdec__drafter_kind specdec__draft_ngram_kind = {
    0, 0, 32, 12, specdec__draft_ngram_init, specdec__draft_ngram_fill, NULL, NULL, specdec__draft_ngram_truncate,
    specdec__draft_ngram_share, specdec__draft_ngram_end, NULL, specdec__draft_ngram_behind, NULL, NULL, NULL,
    NULL, NULL};

/* --- all of them -------------------------------------------------------------------------------------------------- */

#define SPECDEC__WITH_MODEL 1
#define SPECDEC__WITH_HEADS SPECDEC__HEADS
#define SPECDEC__WITH_NGRAM 1

/* In the order of specdec_drafting. Who comes first in the list gets room in the tree first, and is asked last. */
static const struct {
    const char *name;
    const specdec__drafter_kind *kind;
} specdec__drafter_list[SPECDEC__DRAFTER_KINDS] = {
#define SPECDEC__DRAFTER(NAME, kind, name) {name, SPECDEC__WITH_##NAME ? &specdec__draft_##kind##_kind : NULL},
    SPECDEC_DRAFTERS(SPECDEC__DRAFTER)
#undef SPECDEC__DRAFTER
};

/* The kind that a caller names; NULL for "auto" and "off", and for one that was left out. */
static const specdec__drafter_kind *specdec__drafter_kind_of(specdec_drafting drafting)
{
    return drafting > SPECDEC_DRAFT_OFF ? specdec__drafter_list[drafting - SPECDEC_DRAFT_OFF - 1].kind : NULL;
}

SPECDEC__FOR_SPEED

/* =====================================================================================================================
 * >>tune (private): what steps cost and how guesses fare, measured while running; which tree pays best now.
 *     May call: >>base >>tree >>draft
 * ================================================================================================================== */

SPECDEC__FOR_SIZE

#define SPECDEC__TUNE_RANKS 8   /* acceptance is told apart for that many ranks */
#define SPECDEC__TUNE_BINS 10   /* and by tenths of what the drafter thought: shares, probabilities of paths */
#define SPECDEC__TUNE_BEHIND 8  /* tokens of text that a drafter may have to catch up with in a step that times it */
#define SPECDEC__TUNE_MEMORY 0.985 /* what a step leaves of the weight of older ones */
#define SPECDEC__TUNE_STAKE 0.4   /* plain steps that a drafter may lose before it has won any, */
#define SPECDEC__TUNE_SHARE 0.0025 /* and the share of all time that it may lose */
#define SPECDEC__TUNE_DEBT 0.5    /* plain steps of debt at most, and */
#define SPECDEC__TUNE_WEALTH 12.0 /* of credit: what counts is how it goes now */
#define SPECDEC__TUNE_HOPE 0.03  /* plain steps of debt forgiven a step to speculation that promises twice the speed */
#define SPECDEC__TUNE_NAP 4       /* steps between looks at what speculation promises that rests or does not pay */
#define SPECDEC__TUNE_HORIZON 50  /* steps in which catching up with the text must pay */
#define SPECDEC__TUNE_LOAD 0.38 /* of a step of those who write, that reading for others may add to it */
#define SPECDEC__TUNE_BREATH 32   /* steps that read before one that does not, so that this is known as it is now */
#define SPECDEC__TUNE_SMALL (8 << 20) /* bytes of weights of models whose costs are measured before the first step, */
#define SPECDEC__TUNE_TRIAL 0.004     /* for so many seconds: their steps are too short to learn from many of them */

SPECDEC__STATIC_ASSERT(offers_have_ranks, SPECDEC__OFFERS <= SPECDEC__TUNE_RANKS);

/* A running mean of measured times. */
typedef struct specdec__tune_mean {
    double seconds; /* 0: nothing was measured yet */
    double seen;    /* how many measurements, until that no longer matters */
} specdec__tune_mean;

/* What is known of a drafter. Each answers for its own losses. */
typedef struct specdec__tune_drafter {
    double cost;                /* of a level before one was seen, in steps of the target; 0: it costs nothing */
    specdec__tune_mean level;   /* of drafting */
    specdec__tune_mean reading; /* a token of text that it catches up with */
    double credit;              /* seconds that it may still lose against plain steps */
    int idle, patience;         /* steps since it was asked, and how many to wait */
    double offered[SPECDEC__TUNE_RANKS], accepted[SPECDEC__TUNE_RANKS]; /* children, by rank */
    double share[SPECDEC__TUNE_BINS], taken[SPECDEC__TUNE_BINS];        /* sums of shares, and how many of them came */
    double predicted[SPECDEC__TUNE_BINS], came[SPECDEC__TUNE_BINS];     /* nodes that it chose, by the path to them */
} specdec__tune_drafter;

/* What tokens of prompts add to steps in which others write. */
typedef struct specdec__tune_load {
    double row, key;     /* seconds of a token, and of each key that it sees; 0: nothing was measured yet */
    double usual;        /* key over row, by what the model is made of */
    double rows, keys;   /* tokens in the step under way, and the keys that they see together */
    double alone;        /* seconds of a step without a load, as it is now, of so many nodes */
    int nodes;           /* 0: none was seen */
    int doubted;         /* the last one of these was not believed: 1: too slow, -1: too fast, 0: it was */
    int seen;            /* measurements */
    int most;            /* tokens that a step has read, at most */
    int steps;           /* that have read, since one that has not */
} specdec__tune_load;

typedef struct specdec__tune {
    specdec__tune_load load;
    specdec__tune_mean step[SPECDEC__MAX_TREE + 1]; /* of the target, by width */
    specdec__tune_drafter drafters[SPECDEC__MAX_DRAFTERS];
    int count;                                      /* of drafters */
} specdec__tune;

/* One more drafter, of which nothing is known but what a level costs. */
static void specdec__tune_add(specdec__tune *tune, double cost)
{
    specdec__tune_drafter *t = &tune->drafters[tune->count++];
    int i;

    memset(t, 0, sizeof *t);
    t->cost = cost;
    for (i = 0; i < SPECDEC__TUNE_RANKS; i++) { /* a hopeful guess, worth a few observations: losses are bounded */
        t->offered[i] = 4;
        t->accepted[i] = i ? 0.5 : 2.4;
    }
    for (i = 0; i < SPECDEC__TUNE_BINS; i++) {
        t->predicted[i] = 3;
        t->came[i] = 3 * 0.7 * (i + 0.5) / SPECDEC__TUNE_BINS;
        t->share[i] = 3 * (i + 0.5) / SPECDEC__TUNE_BINS;
        t->taken[i] = 0.8 * t->share[i];
    }
    t->patience = 16;
}

/* One more time. Each of the first few counts as much as all before; one outlier moves the mean little. */
static void specdec__tune_see(specdec__tune_mean *mean, double seconds)
{
    const double known = mean->seconds;

    if (mean->seen > 0 && seconds > 2 * known)
        seconds = 2 * known;
    mean->seen = mean->seen < 6 ? mean->seen + 1 : 7;
    mean->seconds = known + (seconds - known) / mean->seen;
}

/* Seconds of a plain step; before one was seen, by the narrowest that was. */
static double specdec__tune_plain(const specdec__tune *tune)
{
    int n = 1;

    while (n < SPECDEC__MAX_TREE && !(tune->step[n].seconds > 0))
        n++;
    return tune->step[n].seconds / (1 + 0.1 * (n - 1));
}

/* times[1..most]: seen widths as they are, others on the line between their neighbours; past the last one, a tenth of a
   step for each node, or the slope seen so far if that is steeper. Never falling. */
static void specdec__tune_times(const specdec__tune *tune, double *times, int most)
{
    int n, known = 1, next = 1;
    double slope;

    times[0] = 0;
    times[1] = specdec__tune_plain(tune);
    for (n = 2; n <= most; n++) {
        for (next = specdec__max_int(next, n); next <= SPECDEC__MAX_TREE && !(tune->step[next].seconds > 0); next++)
            continue;
        if (next <= SPECDEC__MAX_TREE) {
            times[n] = times[n - 1] + (tune->step[next].seconds - times[n - 1]) / (next - n + 1);
        } else {
            slope = known > 1 ? (times[known] - times[1]) / (known - 1) : 0;
            times[n] = times[n - 1] + (slope > 0.1 * times[1] || known > 8 ? slope : 0.1 * times[1]);
        }
        if (tune->step[n].seconds > 0)
            known = n;
        if (times[n] < times[n - 1])
            times[n] = times[n - 1];
    }
}

/* The acceptance vector of a drafter: p[k] = accepted at rank k + 1, the ranks before it having failed. */
static void specdec__tune_acceptance(const specdec__tune_drafter *t, double *p)
{
    double left = 0.999;
    int i;

    for (i = 0; i < SPECDEC__TUNE_RANKS; i++) {
        p[i] = left * t->accepted[i] / t->offered[i];
        left -= p[i];
    }
}

SPECDEC__INLINE int specdec__tune_bin(float probability)
{
    return specdec__max_int(0, specdec__min_int(SPECDEC__TUNE_BINS - 1, (int)(probability * SPECDEC__TUNE_BINS)));
}

/* How probable it is that a candidate of this share is accepted, once its parent is. */
static double specdec__tune_offer(const specdec__tune_drafter *t, float share)
{
    int bin = specdec__tune_bin(share);
    double p = (double)share * t->taken[bin] / t->share[bin];

    return p < 0.999 ? p : 0.999;
}

/* Notes how a drafter's candidates behind one that was reached fared, also those that were not verified. node: of the
   merged tree, accepted there, or -1; token: what came. */
static void specdec__tune_note(specdec__tune_drafter *t, const specdec__proposal *p, int reached, int node,
                               int32_t token)
{
    int i, came = 0;

    for (i = specdec__tree_child(&p->tree, reached, reached + 1); i < p->tree.n;
         i = specdec__tree_child(&p->tree, reached, i + 1)) {
        int rank = specdec__min_int(p->tree.ranks[i], SPECDEC__TUNE_RANKS) - 1;
        int hit = p->place[i] >= 0 ? p->place[i] == node : p->tokens[i] == token;

        if (p->tokens[i] < 0)
            continue;
        t->offered[rank] += !came; /* later ranks count when the earlier ones have failed */
        t->accepted[rank] += hit && !came;
        came |= hit;
        if (p->grows) {
            t->share[specdec__tune_bin(p->share[i])] += (double)p->share[i];
            t->taken[specdec__tune_bin(p->share[i])] += hit;
        }
    }
}

/* Notes whether a node came whose path had this probability by the drafter that chose its place. */
static void specdec__tune_predicted(specdec__tune_drafter *t, float probability, int came)
{
    t->predicted[specdec__tune_bin(probability)]++;
    t->came[specdec__tune_bin(probability)] += came;
}

/* Pairs of sums lose weight, once the first of them is above `enough`. */
static void specdec__tune_fade_pairs(double *seen, double *came, int count, double enough)
{
    int i;

    for (i = 0; i < count; i++)
        if (seen[i] > enough) {
            seen[i] *= SPECDEC__TUNE_MEMORY;
            came[i] *= SPECDEC__TUNE_MEMORY;
        }
}

/* Older observations lose weight. */
static void specdec__tune_fade(specdec__tune *tune)
{
    int i;

    for (i = 0; i < tune->count; i++) {
        specdec__tune_drafter *t = &tune->drafters[i];

        specdec__tune_fade_pairs(t->offered, t->accepted, SPECDEC__TUNE_RANKS, 2);
        specdec__tune_fade_pairs(t->predicted, t->came, SPECDEC__TUNE_BINS, 2);
        specdec__tune_fade_pairs(t->share, t->taken, SPECDEC__TUNE_BINS, 1);
    }
}

/* What a step may speculate on behind one text. */
typedef struct specdec__plan {
    double times[SPECDEC__MAX_TREE + 1]; /* seconds of the step with so many nodes of this text */
    double others;                       /* tokens that the step brings to other texts */
    double plain, rate; /* tokens a second without guesses of this text, and with those of the drafters asked so far */
    int most;                            /* nodes of the tree */
    int fixed;                           /* the tree is always the same, whatever it costs */
} specdec__plan;

/* How many of count nodes, likeliest first and the root among them, pay best when drafting took `drafting` seconds; 1:
   none. worth (count): the probability that a node is accepted. *rate: tokens a second. */
static int specdec__tune_nodes(const specdec__plan *plan, const double *worth, int count, double drafting, double *rate)
{
    const double *times = plan->times;
    double expected = 1 + plan->others;
    int n, best = 1;

    *rate = expected / (times[1] + drafting);
    for (n = 2; n <= count; n++) {
        expected += worth[n - 1];
        if (expected / (times[n] + drafting) > *rate * 1.01) {
            *rate = expected / (times[n] + drafting);
            best = n;
        }
    }
    return best;
}

/* How probable it is that a node comes which its drafter chose for a path of this probability. */
static double specdec__tune_path(const specdec__tune_drafter *t, float probability)
{
    const int bin = specdec__tune_bin(probability);

    return t->came[bin] / t->predicted[bin];
}

/* The same for count nodes of the predicted probabilities by a drafter that chose them. */
static int specdec__tune_chosen(const specdec__tune_drafter *t, const specdec__plan *plan, const float *probability,
                                int count, double *rate)
{
    double worth[SPECDEC__MAX_TREE];
    int i;

    for (i = 0; i < count; i++)
        worth[i] = specdec__tune_path(t, probability[i]);
    return specdec__tune_nodes(plan, worth, count, 0, rate);
}

/* Puts a value into the falling list worth (count, at most `most`); the last one falls out. Returns how many there
   are. */
static int specdec__tune_insert(double *worth, int count, int most, double value)
{
    int at = count < most ? count : most - 1;

    if (count == most && !(value > worth[at]))
        return count;
    for (; at > 0 && value > worth[at - 1]; at--)
        worth[at] = worth[at - 1];
    worth[at] = value;
    return count < most ? count + 1 : count;
}

/* What drafting of so many levels took a drafter that was `behind` tokens; fresh: some of these are of the prompt.
   Returns how much of it does not count against the drafter: reading the prompt, or a pause that somebody else made. */
static double specdec__tune_drafting(specdec__tune *tune, int drafter, int levels, int behind, int fresh,
                                     double seconds)
{
    specdec__tune_drafter *t = &tune->drafters[drafter];
    double reading = seconds - levels * t->level.seconds;

    if (!(t->cost > 0)) { /* more than this was a pause */
        reading = seconds - specdec__tune_plain(tune) / 4;
        return reading > 0 ? reading : 0;
    }
    if (behind <= SPECDEC__TUNE_BEHIND || reading < 0) {
        specdec__tune_see(&t->level, seconds / levels);
        reading = seconds - 2 * levels * t->level.seconds;
        return reading > 0 ? reading : 0;
    }
    specdec__tune_see(&t->reading, reading / behind);
    return fresh ? reading : 0;
}

/* Seconds that drafting a level takes; a guess before it was seen. */
SPECDEC__INLINE double specdec__tune_level(const specdec__tune_drafter *t, const double *times)
{
    return !(t->cost > 0) ? 0 : t->level.seconds > 0 ? t->level.seconds : (0.02 + t->cost) * times[1];
}

/* What a target step of so many nodes took. The first time that a width is seen, its buffers may be cold. */
static void specdec__tune_step(specdec__tune *tune, int width, double seconds)
{
    double times[SPECDEC__MAX_TREE + 1];
    int i;

    if (!(specdec__tune_plain(tune) > 0))
        for (i = 0; i < tune->count; i++)
            tune->drafters[i].credit = SPECDEC__TUNE_STAKE * seconds / (1 + 0.1 * (width - 1));
    else if (!(tune->step[width].seconds > 0)) {
        specdec__tune_times(tune, times, width);
        seconds = seconds < 1.5 * times[width] ? seconds : 1.5 * times[width];
    }
    specdec__tune_see(&tune->step[width], seconds);
}

/* What of prompts a step may read: tokens, until their costs have used up what is left. */
typedef struct specdec__tune_slice {
    double left;     /* seconds, or tokens, or whatever costs are told in */
    double row, key; /* cost of a token, and of each key that it sees */
    int most;        /* tokens */
    int root;        /* 1: the root that comes behind a prompt counts as one more token of it; 0: it costs nothing */
} specdec__tune_slice;

/* Seconds of a step of so many nodes without a load: as it was seen last, or by what steps have cost so far. */
static double specdec__tune_alone(const specdec__tune *tune, int nodes)
{
    const specdec__tune_load *load = &tune->load;
    double times[SPECDEC__MAX_TREE + 1];

    if (nodes == load->nodes)
        return load->alone;
    specdec__tune_times(tune, times, specdec__max_int(nodes, load->nodes));
    return load->nodes ? load->alone * times[nodes] / times[load->nodes] : times[nodes];
}

/* A step without a load was seen. One that was much faster or slower than those before asks for another one at once: if
   that is like it, the machine has changed; else it counts little. */
static void specdec__tune_breathe(specdec__tune *tune, int nodes, double seconds)
{
    specdec__tune_load *load = &tune->load;
    const double known = load->nodes ? specdec__tune_alone(tune, nodes) : seconds;

    const int off = (seconds > 1.25 * known) - (seconds < 0.75 * known), again = off && off == load->doubted;

    load->steps = 0;
    if (off && !load->doubted) {
        load->doubted = off;
        load->steps = SPECDEC__TUNE_BREATH;
        return;
    }
    seconds = seconds < 1.5 * known ? seconds : 1.5 * known;
    load->alone = known + (seconds - known) / (again ? 2 : 8);
    load->nodes = nodes;
    load->doubted = 0;
}

/* The slice of a step in which so many texts write: what keeps its time within 1 + SPECDEC__TUNE_LOAD of what it would
   be without. At first one token, then at most twice as many as were seen. */
static void specdec__tune_cut(specdec__tune *tune, int roots, specdec__tune_slice *slice)
{
    specdec__tune_load *load = &tune->load;

    if (!load->seen) {
        load->row = 0.1 * specdec__tune_plain(tune);
        load->key = load->row * load->usual;
    }
    slice->left = SPECDEC__TUNE_LOAD * specdec__tune_alone(tune, roots);
    slice->row = load->row;
    slice->key = load->key;
    slice->most = load->steps < SPECDEC__TUNE_BREATH ? specdec__max_int(1, 2 * load->most) : 0;
    slice->root = 1;
}

/* How many of `pending` tokens behind so many keys are read. At least one, if nobody has read in this step: else a
   prompt would wait for ever. */
static int specdec__tune_take(specdec__tune_load *load, specdec__tune_slice *slice, int pending, int keys)
{
    int n = 0;

    for (; n < pending && n < slice->most; n++, keys++) {
        const double cost = slice->row + slice->key * keys;

        if (cost > slice->left && load->rows > 0)
            break;
        slice->left -= cost;
        load->rows++;
        load->keys += keys;
    }
    slice->most -= n;
    return n;
}

/* Seconds that the tokens of the step under way are thought to add to it. */
SPECDEC__INLINE double specdec__tune_loaded(const specdec__tune_load *load)
{
    return load->rows * load->row + load->keys * load->key;
}

/* What a step of `nodes` nodes and the load took. The error moves both costs, each by its share, as normalised least
   mean squares do (Widrow and Hoff 1960); one outlier moves them little. */
static void specdec__tune_weigh(specdec__tune *tune, int nodes, double seconds)
{
    specdec__tune_load *load = &tune->load;
    const double rows = load->rows * load->row, keys = load->keys * load->key, expected = rows + keys;
    const double least = 0.01 * specdec__tune_plain(tune);
    double error = seconds - specdec__tune_alone(tune, nodes) - expected;

    load->steps = error < -expected / 2 && load->steps > 3 ? SPECDEC__TUNE_BREATH /* steps may have become faster */
                                                           : load->steps + 1;
    if (load->seen > 2 && error > expected / 2)
        error = expected / 2;
    if (error < -expected / 2)
        error = -expected / 2;
    load->seen = specdec__min_int(load->seen + 1, 4);
    error /= load->seen * (rows * rows + keys * keys);
    load->row *= 1 + error * rows;
    load->key *= 1 + error * keys;
    load->row = load->row > least ? load->row : least;
    load->key = load->key > least * load->usual ? load->key : least * load->usual;
    load->most = specdec__max_int(load->most, (int)load->rows);
}

/* What came of a step. */
typedef struct specdec__tune_outcome {
    int nodes[SPECDEC__MAX_DRAFTERS], came[SPECDEC__MAX_DRAFTERS]; /* guesses that were verified, and accepted ones */
    double drafting[SPECDEC__MAX_DRAFTERS];                        /* seconds */
    double seconds;                                                /* of the target's step */
    int base, texts;                                               /* nodes that are no guesses; texts that have some */
} specdec__tune_outcome;

/* Settles accounts after a step: an accepted guess saves what a token costs without guesses, the rest of the step's
   time is shared by its guesses. A drafter in debt rests until that is paid back: so it never costs much more than its
   share of the time, whatever goes wrong. */
static void specdec__tune_settle(specdec__tune *tune, const specdec__tune_outcome *outcome)
{
    const double plain = specdec__tune_plain(tune), most = SPECDEC__TUNE_WEALTH * plain,
                 least = -SPECDEC__TUNE_DEBT * plain;
    double times[SPECDEC__MAX_TREE + 1], usual, seconds;
    int i, guesses = 0;

    for (i = 0; i < tune->count; i++)
        guesses += outcome->nodes[i];
    specdec__tune_times(tune, times, guesses + outcome->base);
    usual = times[guesses + outcome->base];
    seconds = outcome->seconds > 0 && outcome->seconds < 2 * usual ? outcome->seconds : usual;
    if (!(plain > 0))
        return;
    for (i = 0; i < tune->count; i++) {
        double credit = tune->drafters[i].credit + SPECDEC__TUNE_SHARE * plain - outcome->drafting[i];

        if (guesses)
            credit += outcome->came[i] * times[outcome->base] / outcome->texts -
                      (seconds - times[outcome->base]) * outcome->nodes[i] / guesses;
        tune->drafters[i].credit = credit > most ? most : credit < least ? least : credit;
    }
}

/* Whether a drafter that promises so many tokens a second has to rest. The more it promises, the sooner it is back. */
static int specdec__tune_rests(specdec__tune *tune, int drafter, const specdec__plan *plan, double rate)
{
    const double once = specdec__tune_plain(tune);
    double *credit = &tune->drafters[drafter].credit;

    if (*credit >= 0)
        return 0;
    *credit += SPECDEC__TUNE_NAP * SPECDEC__TUNE_HOPE * once * (rate / plan->plain - 1);
    return 1;
}

/* Whether a drafter in debt need not even be looked at, with so many tokens of text. */
static int specdec__tune_naps(const specdec__tune *tune, int drafter, int count)
{
    return tune->drafters[drafter].credit < 0 && count % SPECDEC__TUNE_NAP;
}

/* The tree that a drafter shall fill in this step, of so many levels at most, after others offered plan->rate. Before
   it can be asked, it has to read so many seconds of text. One that does not pay is asked again now and then, for one
   guess, so seldom that asking costs about a hundredth. Returns the best rate now promised. */
static double specdec__tune_shape(specdec__tune_drafter *t, specdec_tree *tree, const specdec__plan *plan,
                                  int levels, double reading)
{
    const double *times = plan->times, rate = plan->rate;
    double p[SPECDEC__TUNE_RANKS], found = 0, level = specdec__tune_level(t, times);

    specdec__tune_acceptance(t, p);
    if (t->idle % SPECDEC__TUNE_NAP == 0 &&
        !specdec__tree_pick(tree, &found, p, SPECDEC__TUNE_RANKS, times, plan->most, levels, level, plan->others,
                            NULL) &&
        tree->n > 1 && found > rate * 1.02 && reading <= SPECDEC__TUNE_HORIZON * times[1] * (found / rate - 1)) {
        t->idle = 0;
        return found;
    }
    tree->n = 1;
    if (++t->idle < t->patience || reading > t->credit)
        return rate;
    specdec_tree_chains(tree, 1, 1, NULL);
    found = (times[2] - times[1] + 3 * level) / times[1];
    t->patience = specdec__max_int(16, specdec__min_int(1024, (int)(100 * found)));
    t->idle = 0;
    return rate;
}

SPECDEC__FOR_SPEED

/* =====================================================================================================================
 * >>stream (private): a text and all that belongs to it: tokens, its view in the target's cache, settings, the decoder
 *     of its text, counters. What it writes never depends on other texts.
 *     May call: >>base >>text >>model >>kv >>forward >>sample >>tree >>draft
 * ================================================================================================================== */

#define SPECDEC__TEXT_ROOM 1024   /* bytes for a token's text, on top of the vocabulary's longest */
#define SPECDEC__STOCK 8          /* tokens in stock with which a text need not take part in a step */

struct specdec__engine;

struct specdec {
    struct specdec__engine *engine;
    const specdec__model *model;
    int at, open;                /* its place among the engine's texts, and whether that is taken */
    specdec_settings settings;
    specdec_error error;
    int cancel;                  /* set by specdec_cancel */
    specdec_result failed;       /* what went wrong in a step that another text asked for: the next call returns it */

    int context;                 /* tokens, at most */
    int32_t *tokens;             /* (2 * (context + tree depth + 1)): the text, and room for a prompt behind it */
    int count;                   /* of them */
    int handed_out;              /* tokens prompted or handed out by next or step; those behind are in stock */
    int from_row;                /* the answer begins: its first token comes from the last row, without a step */
    int answer_from;             /* where the answer to the last prompt begins */
    int finished;                /* the answer has ended */
    int cancelled;               /* the last call was */
    specdec__view view;          /* in the target's cache */

    float *logprobs;             /* (context + tree depth + 1): of the tokens; 1: prompted, not written */
    specdec_candidate *best;     /* (the same, best_count): what would have been the most probable in its place */
    int best_count;

    specdec__text_stream stream;
    specdec__stop_scan stop;
    unsigned char *token_text, *piece;     /* (text room), (2 * text room + stop room) */
    size_t text_room;
    size_t freed;                          /* bytes of piece that are held back no more, since settings have changed */

    /* its part in the step under way */
    specdec__merged merged;      /* the tree */
    int lead, writes;            /* tokens that are read first, and whether the tree's root comes behind them */
    int loads;                   /* of these, nodes that the step would not have without its prompt */
    int first, row;              /* its first node, and the row of logits of the root */
    int32_t path[SPECDEC__MAX_TREE + 1]; /* (length) accepted nodes, the root first */
    int length;

    /* forks */
    specdec *parent;             /* whose child it is; NULL: nobody's */
    int fork_at, depth, forks;   /* tokens of the parent up to the fork; forks above it; its own since its prompt */
    int32_t forced[SPECDEC_FORK_TOKENS]; /* (forced_count) what the child begins with that is to be made */
    int forced_count;

    specdec_stats stats;
    double prompted_at;          /* clock of the last prompt call; 0: its first token is out */
};

SPECDEC__FOR_SIZE

static void specdec__stream_take_tree(specdec_tree *tree, int size, specdec__arena *arena)
{
    memset(tree, 0, sizeof *tree);
    tree->capacity = size;
    tree->parents = SPECDEC__TAKE(arena, int32_t, size);
    tree->ranks = SPECDEC__TAKE(arena, int32_t, size);
}

/* Takes from an arena what a text of room->length tokens needs. */
static void specdec__stream_lay_out(specdec *t, const specdec__model *model, const specdec_config *c,
                                    const specdec__room *room, specdec__arena *arena)
{
    const size_t tokens = (size_t)room->length + (size_t)c->tree_depth + 1;

    t->model = model;
    t->context = room->length;
    specdec__context_view(&t->view, room, arena);
    t->tokens = SPECDEC__TAKE(arena, int32_t, 2 * tokens);
    t->text_room = (size_t)model->vocab.longest + SPECDEC__TEXT_ROOM;
    t->token_text = SPECDEC__TAKE(arena, unsigned char, t->text_room);
    t->piece = SPECDEC__TAKE(arena, unsigned char, 2 * t->text_room + SPECDEC__STOP_MAX_BYTES);
    specdec__stream_take_tree(&t->merged.tree, c->tree_size, arena);
    t->merged.tokens = SPECDEC__TAKE(arena, int32_t, c->tree_size);
    t->merged.owner = SPECDEC__TAKE(arena, signed char, c->tree_size);
    t->merged.worth = SPECDEC__TAKE(arena, float, c->tree_size);
    if (!c->logprobs)
        return;
    t->best_count = c->logprobs;
    t->logprobs = SPECDEC__TAKE(arena, float, tokens);
    t->best = SPECDEC__TAKE(arena, specdec_candidate, tokens * (size_t)c->logprobs);
}

/* Checks settings; *stop becomes a scan for their stop strings. */
static specdec_result specdec__stream_check(const specdec_settings *settings, specdec__stop_scan *stop,
                                            specdec_error *error)
{
    specdec_result result;
    int i;

    memset(stop, 0, sizeof *stop);
    if (settings->max_tokens < 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "at most %d tokens", settings->max_tokens);
    for (i = 0; i < SPECDEC_STOP_STRINGS && settings->stop[i]; i++)
        if ((result = specdec__stop_add(stop, settings->stop[i], strlen(settings->stop[i]), error)) != SPECDEC_OK)
            return result;
    return specdec__sample_check(&settings->sampling, error);
}

/* Do these sample alike? Biases may have changed where they lie. */
static int specdec__stream_samples_alike(const specdec_sampling *a, const specdec_sampling *b)
{
    return !a->bias_count && !b->bias_count && memcmp(a, b, sizeof *a) == 0;
}

/* Puts a scan for other stop strings in place of the present one. What that held back is looked at again; what then is
   held back no more lies at the front of t->piece, for specdec_next. */
static void specdec__stream_rescan(specdec *t, specdec__stop_scan *stop)
{
    unsigned char held[SPECDEC__STOP_MAX_BYTES];
    const size_t count = specdec__stop_end(&t->stop, held);
    size_t freed;

    stop->stopped = t->stop.stopped;
    t->stop = *stop;
    specdec__stop_push(&t->stop, held, count, t->piece + t->freed, 2 * t->text_room, &freed, NULL);
    t->freed += freed;
}

/* An answer begins behind what was handed out. */
static void specdec__stream_answer(specdec *t)
{
    t->answer_from = t->handed_out;
    t->finished = 0;
    t->stop.stopped = 0;
    t->stop.held = 0;
    t->freed = 0;
    specdec__text_stream_begin(&t->stream, &t->model->vocab, t->handed_out ? t->tokens[t->handed_out - 1] : -1,
                               t->settings.show_special);
}

/* Whether, and why, the answer ends with the first count tokens. */
static specdec_stop specdec__stream_ended(const specdec *t, int count)
{
    const int limit = t->settings.max_tokens, length = count - t->answer_from;

    if (t->stop.stopped)
        return SPECDEC_STOP_STRING;
    if (length > 0 && specdec__vocab_is_end(&t->model->vocab, t->tokens[count - 1]))
        return SPECDEC_STOP_END;
    if (limit && length >= limit)
        return SPECDEC_STOP_LIMIT;
    return count >= t->context ? SPECDEC_STOP_CONTEXT : SPECDEC_STOP_NONE;
}

static void specdec__stream_reverse(int32_t *tokens, int count)
{
    int i;

    for (i = 0; i < count / 2; i++) {
        int32_t token = tokens[i];

        tokens[i] = tokens[count - 1 - i];
        tokens[count - 1 - i] = token;
    }
}

/* Moves the first `count` of count + behind tokens behind the others. */
static void specdec__stream_rotate(int32_t *tokens, int count, int behind)
{
    if (!count || !behind)
        return;
    specdec__stream_reverse(tokens, count);
    specdec__stream_reverse(tokens + count, behind);
    specdec__stream_reverse(tokens, count + behind);
}

/* Can these tokens be appended to what was handed out? */
static specdec_result specdec__stream_prompt_check(specdec *t, const int32_t *tokens, int count)
{
    int i;

    if (count < 0 || (count && !tokens) || (!count && !t->handed_out))
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "the prompt is empty");
    if (count >= t->context - t->handed_out)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT, "the prompt has %d tokens, the context has room for %d",
                             count, specdec__max_int(t->context - t->handed_out - 1, 0));
    for (i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= t->model->vocab_size)
            return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "token id %d, the vocabulary has %d",
                                 (int)tokens[i], t->model->vocab_size);
    return SPECDEC_OK;
}

/* How many of its first tokens another text begins with, too. */
static int specdec__stream_common(const specdec *t, const specdec *other)
{
    const int most = specdec__min_int(t->count, other->count);
    int i = 0;

    while (i < most && t->tokens[i] == other->tokens[i])
        i++;
    return i;
}

SPECDEC__FOR_SPEED

/* =====================================================================================================================
 * >>engine (private): layout of the block, prefill, the step: draft, forward, verify, commit.
 *     May call: every section above
 * ================================================================================================================== */

#define SPECDEC__THREAD_BYTES (4 << 20) /* weights a step for each further thread */
#define SPECDEC__PROMPT_BYTES 16  /* bytes of a prompt's text, at most, for each token of the context */

enum { SPECDEC__MAX_MODELS = 3 }; /* that an engine opens: the target's, and those of drafters */

typedef struct specdec__engine {
    specdec_config config;       /* the caller's, defaults filled in */
    specdec__pool pool;
    int nobody;                  /* the cancel flag of a run for several texts */
    specdec__kernels *kernels;
    specdec__model *own[SPECDEC__MAX_MODELS]; /* (own_count) those that it has opened */
    int own_count;
    const specdec__model *target_model;
    specdec__context target;
    specdec__drafter *drafters;  /* (drafter_count, at most SPECDEC__MAX_DRAFTERS) */
    int drafter_count;
    specdec__tune *tune;         /* NULL while the engine is only measured */
    specdec_rule rule;           /* at temperatures above 0 */
    float *target_distribution;  /* (vocab), for the rules but coupled, and for log-probabilities */
    specdec__chooser chooser;
    const specdec__chat_format *chat;
    size_t memory_bytes;

    specdec__room room;
    specdec *texts;              /* (room.views) */
    const specdec *row_of;       /* the text after whose last token row 0 of the target's logits stands; NULL: none */
    specdec_tree shape;          /* of a drafter that is asked for the same tree at every step */
    specdec **members;           /* (member_count, at most room.views): the texts in the step under way */
    int member_count;
    int reading, roots;          /* nodes of prompts in it, and texts that it writes */
    int turn;                    /* which text is asked first whether it has something to do */
    double spare;                /* seconds that drafters may read in it while others wait; -1: that is not known */
    int32_t fork_token, child_token; /* -1: there are none */

    void *scratch;               /* of the tokenizer */
    size_t scratch_bytes;
    char *chat_text;             /* (chat_bytes) a rendered conversation */
    size_t chat_bytes;
} specdec__engine;

SPECDEC__FOR_SIZE
/* --- layout ------------------------------------------------------------------------------------------------------- */

static specdec_result specdec__engine_check_threads(const specdec_config *c, specdec_error *error)
{
    if (c->threads < 0 || c->threads > SPECDEC_MAX_THREADS)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d threads (0 to %d are possible)", c->threads,
                             SPECDEC_MAX_THREADS);
    return SPECDEC_OK;
}

/* Fills in the defaults and refuses what is out of range. */
static specdec_result specdec__engine_config(specdec_config *c, specdec_error *error)
{
    int kv = specdec__kv_find_type(c->kv ? c->kv : "f16");
    const specdec__drafter_kind *alone;

    if (kv < 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "kv type \"%s\" (f16, f32 and q8_0 are known)", c->kv);
    c->kv = specdec__kv_types[kv].name;
    if (specdec__engine_check_threads(c, error))
        return SPECDEC_ERROR_ARGUMENT;
    if (c->context < 0 || c->context > 1 << 24)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a context of %d tokens", c->context);
    if (c->batch < 0 || c->batch > 512)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a batch of %d tokens (1 to 512 are possible)", c->batch);
    if (c->texts < 0 || c->texts > SPECDEC_MAX_TEXTS)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d texts (1 to %d are possible)", c->texts,
                             SPECDEC_MAX_TEXTS);
    if (c->forks < 0 || c->fork_depth < 0 || c->fork_depth > 8)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d forks, %d deep (8 are possible)", c->forks,
                             c->fork_depth);
    if (c->cache < 0 || c->cache > 1 << 30 || c->slice < 0 || c->history < 0 || c->history > 1 << 24)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a cache of %d tokens, slices of %d, a history of %d",
                             c->cache, c->slice, c->history);
    if (c->logprobs < 0 || c->logprobs > SPECDEC_MAX_LOGPROBS)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d log-probabilities (0 to %d are possible)", c->logprobs,
                             SPECDEC_MAX_LOGPROBS);
    if (c->vocabulary_only)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an engine needs more than a vocabulary");
    if ((int)c->drafting < 0 || c->drafting >= SPECDEC_DRAFT_COUNT)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "drafting %d is not known", (int)c->drafting);
    if ((int)c->rule < 0 || c->rule >= SPECDEC_RULE_GREEDY)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "rule %d is not known (greedy is temperature 0)",
                             (int)c->rule);
    if (!SPECDEC__VERIFIERS && c->rule != SPECDEC_RULE_COUPLED)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "rule %d is left out of this build by SPECDEC_NO_VERIFIERS", (int)c->rule);
    if ((int)c->policy < 0 || c->policy >= SPECDEC_POLICY_COUNT)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "policy %d is not known", (int)c->policy);
    if (c->tree_size < 0 || c->tree_size == 1 || c->tree_size > SPECDEC__MAX_TREE)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a tree of %d nodes (2 to %d are possible)", c->tree_size,
                             SPECDEC__MAX_TREE);
    if (c->tree_depth < 0 || c->tree_depth == 1 || c->tree_depth > SPECDEC_TREE_MAX_DEPTH)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a tree of %d levels (2 to %d are possible)", c->tree_depth,
                             SPECDEC_TREE_MAX_DEPTH);
#ifdef SPECDEC_NO_THREADS
    c->threads = 1;
#endif
    c->batch = c->batch ? c->batch : 64;
    c->texts = c->texts ? c->texts : 1;
    c->forks = c->forks ? c->forks : 16;
    c->fork_depth = c->fork_depth ? c->fork_depth : 2;
    alone = specdec__drafter_kind_of(c->drafting);
    c->tree_size = c->tree_size ? c->tree_size : alone ? alone->size : 32;
    c->tree_depth = specdec__min_int(c->tree_depth ? c->tree_depth : alone ? alone->depth : 12, c->tree_size);
    return SPECDEC_OK;
}

static int specdec__source_given(const specdec_source *s) { return s->model || s->data || s->path; }

/* The model of a source: the caller's prepared one, or one of the engine's own, opened and bound. */
static specdec_result specdec__engine_model(specdec__engine *e, const specdec_source *source,
                                            const specdec__model **out, specdec__arena *arena, specdec_error *error)
{
    *out = source->model ? source->model : e->own[specdec__min_int(e->own_count, SPECDEC__MAX_MODELS - 1)];
    if (source->model && !source->model->weight_bytes)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "this model was prepared for its vocabulary only");
    if (source->model)
        return SPECDEC_OK;
    if (e->own_count == SPECDEC__MAX_MODELS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "more than the %d models that an engine opens",
                             SPECDEC__MAX_MODELS);
    return specdec__model_init(e->own[e->own_count++], source, 0, arena, error);
}

/* Whether trees grow. Which children a node gets, and whether one of them is gone on from, then depends on the tokens
   drawn. Coupled and top-k verification do not mind: the target's token is drawn without looking at the children. The
   rejection rules do: a child offered only because it is probable is no draw from the draft's distribution. Theirs are
   static. */
static int specdec__engine_grows(const specdec_config *c)
{
    return c->policy == SPECDEC_POLICY_DYNAMIC && (c->rule == SPECDEC_RULE_COUPLED || c->rule == SPECDEC_RULE_TOP_K);
}

/* How the next token's guesses are accepted. At temperature 0 every rule is the same: the target's token is known. */
static specdec_rule specdec__engine_rule(const specdec__engine *e, const specdec *t)
{
    return t->settings.sampling.temperature > 0 ? e->rule : SPECDEC_RULE_COUPLED;
}

/* What a drafter proposes with for each text. */
static void specdec__engine_proposals(specdec__engine *e, specdec__drafter *d, specdec__arena *arena)
{
    const int size = e->config.tree_size, grows = d->kind->extend && specdec__engine_grows(&e->config);
    specdec__proposal counted, *p;
    int i;

    d->proposals = SPECDEC__TAKE(arena, specdec__proposal, e->room.views);
    for (i = 0; i < e->room.views; i++) {
        p = d->proposals ? &d->proposals[i] : &counted;
        p->at = i;
        p->grows = grows;
        specdec__stream_take_tree(&p->tree, grows ? 1 + size * SPECDEC__OFFERS : size, arena);
        p->tokens = SPECDEC__TAKE(arena, int32_t, p->tree.capacity);
        p->depth = SPECDEC__TAKE(arena, int32_t, p->tree.capacity);
        p->share = SPECDEC__TAKE(arena, float, p->tree.capacity);
        p->probability = SPECDEC__TAKE(arena, float, p->tree.capacity);
        p->place = SPECDEC__TAKE(arena, int32_t, p->tree.capacity);
        p->chosen = SPECDEC__TAKE(arena, int32_t, size);
        p->kept = SPECDEC__TAKE(arena, int32_t, size);
        if (e->rule != SPECDEC_RULE_COUPLED && d->kind->draws)
            p->distributions = SPECDEC__TAKE(arena, float, (size_t)size * (size_t)e->target_model->vocab_size);
    }
}

/* The tree that is always the same: a chain, or the best of its size and depth for a middling acceptance. */
static specdec_result specdec__engine_tree(specdec__engine *e, specdec__arena *arena, specdec_error *error)
{
    static const double acceptance[] = {0.62, 0.13, 0.06, 0.03, 0.02, 0.015, 0.01, 0.008};
    const int levels = e->drafter_count ? e->drafters[0].levels + 1 : SPECDEC_TREE_MAX_DEPTH;
    const int depth = specdec__min_int(e->config.tree_depth, levels), width = (int)SPECDEC__COUNT(acceptance);
    const int size = depth > 2 ? e->config.tree_size : specdec__min_int(e->config.tree_size, width + 1);
    size_t bytes = specdec_tree_memory(size, depth, width);
    void *memory = specdec__arena_take(arena, bytes, 1, SPECDEC__CACHE_LINE);

    specdec__stream_take_tree(&e->shape, size, arena);
    if (!arena->base || arena->used == SIZE_MAX)
        return SPECDEC_OK;
    return depth == size ? specdec_tree_chains(&e->shape, 1, size - 1, error)
                         : specdec_tree_best(&e->shape, NULL, acceptance, width, size, depth, memory, bytes, error);
}

/* What all texts use in turn. A prompt of more bytes than its context could ever hold is refused before it is looked
   at. */
static void specdec__engine_buffers(specdec__engine *e, specdec__arena *arena)
{
    e->chooser.items = SPECDEC__TAKE(arena, specdec_candidate, e->target_model->vocab_size);
    if (e->rule != SPECDEC_RULE_COUPLED || e->config.logprobs)
        e->target_distribution = SPECDEC__TAKE(arena, float, e->target_model->vocab_size);
    e->chat_bytes = specdec__size_multiply((size_t)e->room.length, SPECDEC__PROMPT_BYTES);
    e->chat_text = SPECDEC__TAKE(arena, char, e->chat_bytes);
    e->scratch_bytes = specdec__tokenize_scratch(&e->target_model->vocab, e->chat_bytes);
    e->scratch = specdec__arena_take(arena, e->scratch_bytes, 1, SPECDEC__CACHE_LINE);
}

/* The table of texts, all of them free. */
static void specdec__engine_texts(specdec__engine *e, specdec__arena *arena)
{
    specdec counted, *t;
    int i;

    memset(&counted, 0, sizeof counted);
    e->texts = SPECDEC__TAKE(arena, specdec, e->room.views);
    e->members = SPECDEC__TAKE(arena, specdec *, e->room.views);
    for (i = 0; i < e->room.views; i++) {
        t = e->texts ? &e->texts[i] : &counted;
        t->engine = e;
        t->at = i;
        specdec__stream_lay_out(t, e->target_model, &e->config, &e->room, arena);
    }
}

/* As many threads, of those there are, as a model's step keeps busy between two barriers. */
static int specdec__engine_threads(const specdec__model *model, int threads)
{
    size_t busy = 1 + model->weight_bytes / SPECDEC__THREAD_BYTES;

    return busy < (size_t)threads ? (int)busy : threads;
}

/* Where the model of a kind of drafter comes from; NULL: it needs none. */
static const specdec_source *specdec__engine_source(const specdec_config *c, const specdec__drafter_kind *kind)
{
    return kind->source ? (const specdec_source *)(const void *)((const char *)c + kind->source) : NULL;
}

/* Adds a drafter, for which there is room: its model, if it needs one, its proposal, its state. */
static specdec_result specdec__engine_add(specdec__engine *e, const specdec__drafter_kind *kind,
                                          specdec_drafting drafting, specdec__arena *arena, specdec_error *error)
{
    specdec__drafter *d = &e->drafters[e->drafter_count++];
    const specdec_source *source = specdec__engine_source(&e->config, kind);
    specdec__draft_setup setup;
    specdec_result result;
    int i;

    memset(&setup, 0, sizeof setup);
    d->drafting = drafting;
    d->levels = SPECDEC_TREE_MAX_DEPTH;
    if (source && (result = specdec__engine_model(e, source, &d->model, arena, error)) != SPECDEC_OK)
        return result;
    d->kind = kind = kind->layers && d->model->architecture ? kind->layers : kind;
    if (source)
        setup.threads = specdec__engine_threads(d->model, e->config.threads);
    setup.config = &e->config;
    setup.target = &e->target;
    setup.room = &e->room;
    specdec__engine_proposals(e, d, arena);
    setup.capacity = d->kind->extend && specdec__engine_grows(&e->config) ? 1 + e->config.tree_size * SPECDEC__OFFERS
                                                                           : e->config.tree_size;
    if (e->tune)
        specdec__tune_add(e->tune, kind->cost ? kind->cost(d, e->target_model) : 0);
    result = kind->init ? kind->init(d, &setup, arena, error) : SPECDEC_OK;
    if (d->taps.count)
        e->target.taps[1] = d->taps;
    for (i = 0; d->proposals && i < e->room.views; i++)
        d->proposals[i].levels = specdec__min_int(e->config.tree_depth, d->levels + 1);
    return result;
}

/* The drafter that the configuration names, or all that have what they need, and the rule that verifies them. When none
   draws children from a distribution, the target draws for itself, whatever rule was chosen. */
static specdec_result specdec__engine_drafters(specdec__engine *e, specdec__arena *arena, specdec_error *error)
{
    const specdec_config *c = &e->config;
    specdec_result result;
    int i;

    e->rule = c->rule;
    for (i = SPECDEC_DRAFT_OFF + 1; i < SPECDEC_DRAFT_COUNT; i++) {
        const specdec__drafter_kind *kind = specdec__drafter_kind_of((specdec_drafting)i);
        const specdec_source *source = kind ? specdec__engine_source(c, kind) : NULL;
        const int named = (int)c->drafting == i, given = !source || specdec__source_given(source);

        if (!kind && named)
            return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "drafting \"%s\" is left out of this build",
                                 specdec__drafter_list[i - SPECDEC_DRAFT_OFF - 1].name);
        if (!kind || (!named && (c->drafting != SPECDEC_DRAFT_AUTO || !given)))
            continue;
        if (!given)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "drafting \"%s\" needs a model to draft with",
                                 specdec__drafter_list[i - SPECDEC_DRAFT_OFF - 1].name);
        if (e->drafter_count && e->rule != SPECDEC_RULE_COUPLED)
            break; /* rules of rejection want the children of a node from one distribution */
        if ((result = specdec__engine_add(e, kind, (specdec_drafting)i, arena, error)) != SPECDEC_OK)
            return result;
    }
    if (e->rule != SPECDEC_RULE_COUPLED && (!e->drafter_count || !e->drafters[0].kind->draws))
        e->rule = SPECDEC_RULE_TOP_K;
    return SPECDEC_OK;
}

/* How many texts there are, of how many tokens, and how wide a step is: a prompt's batch, a tree, or a root for each
   text, and the root that specdec_logits puts before them. */
static void specdec__engine_room(specdec__engine *e)
{
    const specdec_config *c = &e->config;
    specdec__room *room = &e->room;

    room->views = c->texts;
    room->length = c->context ? c->context : specdec__min_int(e->target_model->context, 4096);
    room->keys = c->cache ? c->cache : specdec__min_int(room->length, (1 << 30) / room->views) * room->views;
    room->most = specdec__max_int(specdec__max_int(c->batch, c->tree_size),
                                  specdec__min_int(c->texts, SPECDEC__MAX_TREE)) + 1;
}

/* Lays the whole engine out in an arena: the one place that knows what an engine needs. */
static specdec_result specdec__engine_layout(specdec__engine *e, specdec__arena *arena, specdec_error *error)
{
    specdec_config *c = &e->config;
    int kv = specdec__kv_find_type(c->kv);
    specdec_result r;

    if ((r = specdec__engine_model(e, &c->target, &e->target_model, arena, error)) != SPECDEC_OK)
        return r;
    if (!specdec__model_writes(e->target_model) || e->target_model->id_count)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the target is a %s: that can only draft",
                             specdec__model_writes(e->target_model) ? "model of a short vocabulary" : "file of heads");
    c->threads = c->threads ? c->threads : specdec__engine_threads(e->target_model, specdec__os_processors());
    if ((r = specdec__pool_init(&e->pool, c->threads, &e->nobody, arena, error)) != SPECDEC_OK)
        return r;
    specdec__engine_room(e);
    specdec__context_init(&e->target, e->target_model, NULL, e->kernels, &e->pool, c->threads, kv, &e->room,
                          e->room.most, arena);
    if ((r = specdec__engine_drafters(e, arena, error)) != SPECDEC_OK)
        return r;
    e->chooser.kernels = e->kernels;
    specdec__engine_buffers(e, arena);
    specdec__engine_texts(e, arena);
    return specdec__engine_tree(e, arena, error);
}

/* The parts of an engine that do not lie in it, so that measuring one takes little stack. */
static void specdec__engine_parts(specdec__engine *e, specdec__arena *arena)
{
    specdec__kernels *kernels = SPECDEC__TAKE(arena, specdec__kernels, 1);
    specdec__model *own = SPECDEC__TAKE(arena, specdec__model, SPECDEC__MAX_MODELS);
    specdec__drafter *drafters = SPECDEC__TAKE(arena, specdec__drafter, SPECDEC__MAX_DRAFTERS);
    int i;

    if (arena->base) {
        e->kernels = kernels;
        for (i = 0; i < SPECDEC__MAX_MODELS; i++)
            e->own[i] = &own[i];
        e->drafters = drafters;
    }
    e->tune = SPECDEC__TAKE(arena, specdec__tune, 1);
}

/* Repacked weights, behind everything else. */
static specdec_result specdec__engine_repack(specdec__engine *e, specdec__arena *arena, specdec_error *error)
{
    specdec_result r = SPECDEC_OK;
    int i;

    for (i = 0; !r && !e->config.weights_in_place && i < e->own_count; i++)
        r = specdec__model_repack(e->own[i], arena, &e->pool, &e->config.hooks, error);
    return r;
}

/* Releases the models that the engine has opened. */
static void specdec__engine_close(specdec__engine *e)
{
    while (e->own_count)
        specdec__model_deinit(e->own[--e->own_count]);
}

/* --- what steps cost ---------------------------------------------------------------------------------------------- */

/* A forward of n tokens, or one level of a drafter behind one token. Both are forgotten again. */
static specdec_result specdec__engine_try(specdec__engine *e, specdec__drafter *d, int n)
{
    specdec *t = &e->texts[0];
    specdec__batch batch = specdec__forward_alone(&e->target, &t->view, 0, n);
    specdec__proposal *p;
    specdec_result result;

    if (!d) {
        result = specdec__forward(&e->target, &batch, NULL);
        specdec__view_unreserve(&t->view, &e->target.kv);
        return result;
    }
    p = &d->proposals[t->at];
    specdec__draft_begin(p, t->tokens, 1, &t->settings.sampling, specdec__engine_rule(e, t));
    specdec_tree_chains(&p->tree, 1, 1, NULL);
    p->depth[1] = 1;
    result = d->kind->fill(d, p, NULL);
    if (d->kind->truncate)
        d->kind->truncate(d, t->at, t->tokens, 0);
    return result;
}

/* Seconds that takes, the least of three: buffers are cold at first, and others may want the processor; fewer tries
   once the clock has passed `end`. 0 when it fails. */
static double specdec__engine_time(specdec__engine *e, specdec__drafter *d, int n, double end)
{
    double least = 0;
    int i;

    for (i = 0; i < n; i++) {
        e->target.tokens[i] = 0;
        e->target.parents[i] = i - 1;
    }
    for (i = 0; i < 3 && (!i || specdec__os_seconds() < end); i++) {
        double start = specdec__os_seconds(), seconds;

        if (specdec__engine_try(e, d, n))
            break;
        seconds = specdec__os_seconds() - start;
        least = i && least < seconds ? least : seconds;
    }
    return least;
}

/* Whether one drafter was chosen that has its price: then it gets the same tree at every step. */
static int specdec__engine_fixed(const specdec__engine *e)
{
    return e->config.drafting > SPECDEC_DRAFT_OFF && e->drafter_count && e->drafters[0].kind->cost;
}

/* Measures steps of small models before there is a text; without a clock there is nothing to measure. */
static void specdec__engine_trial(specdec__engine *e)
{
    const double now = specdec__os_seconds(), end = now + SPECDEC__TUNE_TRIAL;
    size_t bytes = e->target_model->weight_bytes;
    double seconds;
    int i, n;

    for (i = 0; i < e->drafter_count; i++)
        bytes += e->drafters[i].model ? e->drafters[i].model->weight_bytes : 0;
    if (!e->drafter_count || specdec__engine_fixed(e) || bytes > SPECDEC__TUNE_SMALL || !(now > 0))
        return;
    for (i = 0; i < e->drafter_count; i++)
        if (e->drafters[i].kind->cost && (seconds = specdec__engine_time(e, &e->drafters[i], 0, end)) > 0)
            specdec__tune_see(&e->tune->drafters[i].level, seconds);
    for (n = 1; n <= 16 && n <= e->config.tree_size && specdec__os_seconds() < end; n *= 2)
        if ((seconds = specdec__engine_time(e, NULL, n, end)) > 0)
            specdec__tune_step(e->tune, n, seconds);
}

/* Finds the chat format that the configuration names, or the one that the model's template shows. */
static specdec_result specdec__engine_chat(specdec__engine *e, specdec_error *error)
{
    const char *name = e->config.chat_format;
    const specdec__bytes chat_template = e->target_model->chat_template;

    if (name) {
        e->chat = specdec__chat_find(name, strlen(name));
        if (!e->chat)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "chat format \"%s\" is not known", name);
    } else if (chat_template.data) {
        e->chat = specdec__chat_find((const char *)chat_template.data, chat_template.size);
        if (!e->chat)
            specdec__tell(&e->config.hooks,
                          "the model's chat template is of no known format: specdec_chat needs config.chat_format");
    }
    return SPECDEC_OK;
}

/* Finds the tokens by which texts fork. */
static specdec_result specdec__engine_fork_tokens(specdec__engine *e, specdec_error *error)
{
    const specdec__vocab *vocab = &e->target_model->vocab;
    const char *fork = e->config.fork_token, *child = e->config.child_token;
    const int named = fork && *fork;

    e->fork_token = e->child_token = -1;
    if ((fork && !*fork) || (!named && e->config.texts == 1))
        return SPECDEC_OK;
    e->fork_token = specdec__vocab_named(vocab, named ? fork : "[Fork]");
    e->child_token = specdec__vocab_named(vocab, child ? child : "[Child]");
    if (e->fork_token >= 0 && e->child_token >= 0 && e->fork_token != e->child_token)
        return SPECDEC_OK;
    e->fork_token = e->child_token = -1;
    return named ? specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "no two tokens \"%s\" and \"%s\" in the vocabulary",
                                 fork, child ? child : "[Child]")
                 : SPECDEC_OK;
}

/* Tells the log what the engine is made of. */
static void specdec__engine_tell(const specdec__engine *e)
{
    const specdec_hooks *hooks = &e->config.hooks;
    const specdec__model *m = e->target_model;
    int i;

    specdec__tell(hooks, "target: %s, %d layers of %d, a vocabulary of %d, %zu bytes of weights a step",
                  m->architecture->name, m->layers, m->embedding, m->vocab_size, m->weight_bytes);
    if (e->room.length > m->context)
        specdec__tell(hooks, "a context of %d tokens, though the model was made for %d", e->room.length, m->context);
    for (i = 0; i < e->drafter_count; i++)
        specdec__tell(hooks, "drafter: %s, %zu bytes of weights a level",
                      specdec__drafter_list[e->drafters[i].drafting - SPECDEC_DRAFT_OFF - 1].name,
                      e->drafters[i].model ? e->drafters[i].model->weight_bytes : 0);
    specdec__tell(hooks, "engine: %s, %d threads, a context of %d tokens in %s, a block of %zu bytes", e->kernels->name,
                  e->pool.threads, e->room.length, e->config.kv, e->memory_bytes);
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

/* Forgets what the target computed for the last of count tokens and for those behind it: it becomes a root again. */
static void specdec__engine_reroot(specdec *t, int count)
{
    specdec__engine *e = t->engine;

    specdec__view_truncate(&t->view, &e->target.kv,
                           specdec__min_int(t->view.length, specdec__max_int(count - 1, 0)));
    if (e->row_of == t)
        e->row_of = NULL;
}

/* Forgets all that was computed for tokens behind the first count. The text itself stays. */
static void specdec__engine_forget(specdec *t, int count)
{
    specdec__engine *e = t->engine;
    int i;

    specdec__engine_reroot(t, count);
    for (i = 0; i < e->drafter_count; i++)
        if (e->drafters[i].kind->truncate)
            e->drafters[i].kind->truncate(&e->drafters[i], t->at, t->tokens, count);
}

/* A text of which nothing is computed, or less, begins with the first length tokens of another: it shares its pages. */
static void specdec__engine_share(specdec *t, const specdec *of, int length)
{
    specdec__engine *e = t->engine;
    int i;

    specdec__engine_forget(t, 0);
    if (!specdec__view_share(&t->view, &e->target.kv, &of->view, 0, specdec__min_int(length, of->view.length)))
        specdec__view_truncate(&t->view, &e->target.kv, 0); /* its window's pages are gone */
    for (i = 0; i < e->drafter_count; i++)
        if (e->drafters[i].kind->share)
            e->drafters[i].kind->share(&e->drafters[i], t->at, of->at, length);
    for (i = 0; i < e->drafter_count; i++) /* a state that the other text no longer has is computed once more */
        if (e->drafters[i].kind->heard && e->drafters[i].kind->heard(&e->drafters[i], t->at) == t->view.length - 1)
            specdec__view_truncate(&t->view, &e->target.kv, t->view.length - 1);
}

/* A place in the table becomes an empty text. */
static void specdec__engine_open(specdec *t)
{
    t->open = 1;
    t->settings = t->engine->config.settings;
    t->error.code = SPECDEC_OK;
    t->error.text[0] = 0;
    t->failed = SPECDEC_OK;
    t->cancel = t->count = t->handed_out = t->from_row = t->cancelled = 0;
    t->parent = NULL;
    t->fork_at = t->depth = t->forks = t->forced_count = 0;
    t->prompted_at = 0;
    memset(&t->stats, 0, sizeof t->stats);
    specdec__stream_check(&t->settings, &t->stop, NULL);
    specdec__stream_answer(t);
}

/* Gives back what a text that has ended holds in caches. What drafters remember of it, they do. */
static void specdec__engine_release(specdec *t)
{
    specdec__engine *e = t->engine;
    int i;

    for (i = 0; i < e->drafter_count; i++)
        if (e->drafters[i].kind->end)
            e->drafters[i].kind->end(&e->drafters[i], t->at, t->tokens);
    specdec__engine_forget(t, 0);
}

/* A text becomes a free place in the table. */
static void specdec__engine_vacate(specdec *t)
{
    specdec__engine_release(t);
    t->open = t->count = t->handed_out = 0;
}

/* Closes the children that a text has got by forks behind its first count tokens, and theirs. */
static void specdec__engine_disown(specdec *t, int count)
{
    specdec__engine *e = t->engine;
    int i;

    for (i = 0; i < e->room.views; i++) {
        specdec *x = &e->texts[i];

        if (x->open && x->parent == t && x->fork_at > count) {
            specdec__engine_disown(x, 0);
            specdec__engine_vacate(x);
            t->forks--;
        }
    }
    if (t->count > count)
        t->forced_count = 0;
}

/* Gives up the stock of a text, and the children that have come of it. */
static void specdec__engine_unstock(specdec *t)
{
    specdec__engine_disown(t, t->handed_out);
    specdec__engine_forget(t, t->handed_out);
    t->count = t->handed_out;
}

/* How many children a text has by forks behind its first count tokens. */
static int specdec__engine_born(const specdec *t, int count)
{
    int i, born = 0;

    for (i = 0; i < t->engine->room.views; i++) {
        const specdec *x = &t->engine->texts[i];

        born += x->open && x->parent == t && x->fork_at > count;
    }
    return born;
}

/* A free place in the table; NULL: all are taken. */
static specdec *specdec__engine_vacancy(const specdec__engine *e)
{
    int i;

    for (i = 0; i < e->room.views; i++)
        if (!e->texts[i].open)
            return &e->texts[i];
    return NULL;
}

/* An empty text becomes a copy of another one, with its stock. */
static void specdec__engine_copy(specdec *t, const specdec *of)
{
    const size_t count = (size_t)of->count;

    t->settings = of->settings;
    t->stream = of->stream;
    t->stop = of->stop;
    t->freed = of->freed;
    t->count = of->count;
    t->handed_out = of->handed_out;
    t->answer_from = of->answer_from;
    t->finished = of->finished;
    t->depth = of->depth;
    t->forks = of->forks;
    t->forced_count = of->forced_count;
    memcpy(t->forced, of->forced, sizeof t->forced);
    memcpy(t->piece, of->piece, of->freed);
    memcpy(t->tokens, of->tokens, count * sizeof *t->tokens);
    if (t->logprobs) {
        memcpy(t->logprobs, of->logprobs, count * sizeof *t->logprobs);
        memcpy(t->best, of->best, count * (size_t)t->best_count * sizeof *t->best);
    }
    specdec__engine_share(t, of, specdec__max_int(t->count - 1, 0));
}

/* A text that is to fork gets its child. Without a free place the text has failed, for now. */
static void specdec__engine_bear(specdec *t)
{
    specdec *child = specdec__engine_vacancy(t->engine);
    int i;

    if (!child) {
        t->failed = specdec__fail(&t->error, SPECDEC_ERROR_MEMORY, "no place for a text that forks off: all of the %d "
                                  "are open (config.texts)", t->engine->room.views);
        return;
    }
    specdec__engine_open(child);
    specdec__engine_copy(child, t);
    child->parent = t;
    child->fork_at = t->count;
    child->depth = t->depth + 1;
    child->forks = child->forced_count = 0;
    for (i = 0; i < t->forced_count; i++) {
        if (child->logprobs)
            child->logprobs[child->count] = 1;
        child->tokens[child->count++] = t->forced[i];
    }
    child->handed_out = child->count;
    child->stop.stopped = 0;
    specdec__stream_answer(child);
    t->forks++;
    t->forced_count = 0;
}

static specdec_result specdec__engine_start(specdec__engine *e, specdec_error *error)
{
    const specdec__model *m = e->target_model;
    specdec_result result = specdec__engine_chat(e, error);

    if (!result)
        result = specdec__engine_fork_tokens(e, error);
    if (result)
        return result;
    e->tune->load.usual = 12.0 * m->layers * m->heads * m->head_dim / (double)m->weight_bytes;
    specdec__engine_open(&e->texts[0]);
    specdec__engine_tell(e);
    specdec__engine_trial(e);
    return SPECDEC_OK;
}

/* --- prefill ------------------------------------------------------------------------------------------------------ */

/* Tells drafters which tokens of a text the target has read in the last step: those from `from` on, whose nodes are
   path (n), counted from node `first`. row: of those wanted, that of the last of them; -1: it was not wanted. A drafter
   whose cache has no room left may miss some. */
static specdec_result specdec__engine_follow(specdec *t, int from, int n, int first, const int *path, int row)
{
    specdec__engine *e = t->engine;
    specdec_result result = SPECDEC_OK;
    specdec__heard heard;
    int i;

    heard.at = t->at;
    heard.text = t->tokens;
    heard.count = t->count;
    heard.from = from;
    heard.n = n;
    heard.first = first;
    heard.path = path;
    heard.state = row < 0 ? NULL : e->target.h + (size_t)row * (size_t)e->target.e;
    for (i = 0; i < e->drafter_count && (!result || result == SPECDEC_ERROR_CONTEXT); i++)
        if (e->drafters[i].kind->follow)
            result = e->drafters[i].kind->follow(&e->drafters[i], &heard, &t->error);
    return result == SPECDEC_ERROR_CONTEXT ? SPECDEC_OK : result;
}

/* The same for a batch of a prompt. */
static specdec_result specdec__engine_hear(void *text, int at, int n)
{
    specdec *t = (specdec *)text;
    const specdec__context *c = &t->engine->target;

    return specdec__engine_follow(t, at, n, 0, NULL, c->wanted[n - 1] ? c->row_count - 1 : -1);
}

/* Runs tokens[view length, count) through the target, for the rows that are wanted; if that of the last token is among
   them, it becomes row 0. */
static specdec_result specdec__engine_prefill(specdec *t, int count, const specdec__rows *rows)
{
    specdec__engine *e = t->engine;
    specdec__rows heard = *rows;
    specdec_result result;

    heard.hear = specdec__engine_hear;
    heard.listener = t;
    e->row_of = NULL;
    e->pool.cancel = &t->cancel;
    result = specdec__forward_text(&e->target, &t->view, t->tokens, count, e->config.batch, &heard, &e->config.hooks,
                                   &t->error);
    if (!result && rows->from < count)
        e->row_of = t;
    return result;
}

/* When another text begins with more of the same tokens than were computed here, that is taken over. */
static void specdec__engine_adopt(specdec *t)
{
    const specdec__engine *e = t->engine;
    const specdec *best = NULL;
    int i, length = t->view.length + SPECDEC__KEYS / 4; /* less is not worth it */

    for (i = 0; i < e->room.views; i++) {
        const specdec *other = &e->texts[i];
        int common = other == t || !other->open ? 0 : specdec__stream_common(t, other);

        common = specdec__min_int(common, specdec__min_int(other->view.length, t->count - 1));
        if (common > length) {
            length = common;
            best = other;
        }
    }
    if (best)
        specdec__engine_share(t, best, length);
}

/* Reads a prompt that lies behind the first `before` tokens. One text of several is read by the steps, unless rows of
   it are wanted at once. */
static specdec_result specdec__engine_read(specdec *t, int before, const specdec__rows *wanted)
{
    specdec__rows rows = wanted ? *wanted : specdec__forward_wanted(t->count - 1);

    t->from_row = 0;
    if (t->engine->room.views > 1 && !wanted) {
        specdec__engine_adopt(t);
        return SPECDEC_OK;
    }
    t->from_row = 1;
    rows.from = rows.logits ? before : t->count - 1;
    rows.states_from = before;
    return specdec__engine_prefill(t, t->count, &rows);
}

/* Appends tokens to what was handed out and runs them; they may lie behind the text. The stock is given up when that
   has succeeded. On failure all is as it was: the stock waits behind the prompt meanwhile. wanted: NULL, or where a row
   or the states of each of them shall go. */
static specdec_result specdec__engine_prompt(specdec *t, const int32_t *tokens, int count, const specdec__rows *wanted)
{
    const int before = t->handed_out, stock = t->count - before, from_row = t->from_row;
    double start = specdec__os_seconds();
    specdec_result result = specdec__stream_prompt_check(t, tokens, count);
    int i;

    if (result)
        return result;
    if (stock)
        specdec__engine_forget(t, before);
    if (count)
        memmove(t->tokens + t->count, tokens, (size_t)count * sizeof *tokens);
    specdec__stream_rotate(t->tokens + before, stock, count);
    t->count = before + count;
    result = specdec__engine_read(t, before, count ? wanted : NULL);
    if (result) {
        specdec__engine_forget(t, before);
        specdec__stream_rotate(t->tokens + before, count, stock);
        t->count = before + stock;
        t->from_row = from_row;
        return result;
    }
    t->handed_out = t->count;
    for (i = before; t->logprobs && i < t->count; i++)
        t->logprobs[i] = 1;
    specdec__engine_disown(t, 0);
    t->forks = 0;
    specdec__stream_answer(t);
    t->failed = SPECDEC_OK;
    t->stats.prompt_tokens += count;
    t->stats.prompt_seconds += specdec__os_seconds() - start;
    t->prompted_at = start;
    return SPECDEC_OK;
}

/* --- who takes part in a step, and with how many nodes ------------------------------------------------------------ */

/* What went wrong with a text in a step: the next call on it tells. */
static void specdec__engine_drop(specdec *t, specdec_result result)
{
    specdec__view_unreserve(&t->view, &t->engine->target.kv);
    t->failed = result;
    if (result == SPECDEC_ERROR_CANCELLED)
        SPECDEC__STORE(&t->cancel, 0);
}

/* Whether a pending cancellation keeps a text from taking part. */
static int specdec__engine_cancelled(specdec *t)
{
    if (!SPECDEC__LOAD(&t->cancel))
        return 0;
    specdec__engine_drop(t, specdec__fail(&t->error, SPECDEC_ERROR_CANCELLED, "cancelled"));
    return 1;
}

/* Tokens that have to be read before the last one can be a root. */
static int specdec__engine_pending(const specdec *t) { return t->count - 1 - t->view.length; }

/* Whether a text has something to do: it was prompted, has not ended, and what it writes is taken. Children run on; as
   perhaps nobody asks what went wrong with them, they try again when there was no room. */
static int specdec__engine_wants(specdec *t)
{
    if (t->parent && (t->failed == SPECDEC_ERROR_MEMORY || t->failed == SPECDEC_ERROR_CONTEXT))
        t->failed = SPECDEC_OK;
    if (!t->open || !t->count || t->failed || specdec__stream_ended(t, t->count) != SPECDEC_STOP_NONE ||
        (t->count - t->handed_out >= SPECDEC__STOCK && !t->parent))
        return 0;
    if (t->forced_count)
        specdec__engine_bear(t);
    return !t->failed;
}

/* Nodes of a step, at most. */
static int specdec__engine_most(const specdec__engine *e)
{
    return specdec__min_int(SPECDEC__MAX_TREE, e->target.most);
}

/* Makes up the step: t, if not NULL, then all others that have something to do, as many as it has nodes for. Whoever
   finds no room is the first in the next one. */
static void specdec__engine_gather(specdec__engine *e, specdec *t)
{
    const int views = e->room.views, first = e->turn;
    int i;

    e->member_count = e->roots = e->reading = 0;
    e->turn = views > 1 ? (first + 1) % views : 0;
    for (i = t ? -1 : 0; i < views; i++) {
        specdec *x = i < 0 ? t : &e->texts[(first + i) % views];

        if ((x == t && i >= 0) || !specdec__engine_wants(x) || specdec__engine_cancelled(x))
            continue;
        if (e->member_count == specdec__engine_most(e)) {
            e->turn = x->at;
            return;
        }
        if (x->from_row)
            specdec__engine_reroot(x, x->count);
        x->from_row = x->lead = 0;
        e->roots += specdec__engine_pending(x) == 0;
        e->members[e->member_count++] = x;
    }
}

/* What of prompts a step may read: all that fits, while nobody writes; else what the configuration says, or what was
   seen to make a step not much longer. */
static void specdec__engine_slice(specdec__engine *e, specdec__tune_slice *slice)
{
    slice->row = 1;
    slice->key = 0;
    slice->root = 0;
    slice->left = slice->most = !e->roots ? e->config.batch : e->config.slice;
    e->tune->load.rows = e->tune->load.keys = 0;
    e->spare = -1;
    if (e->roots && !e->config.slice) {
        slice->most = 0; /* the first step of those who write shows what it takes without prompts */
        if (e->tune->load.nodes)
            specdec__tune_cut(e->tune, e->roots, slice);
    }
}

/* Shares out the nodes that read prompts. A prompt that is read to its end has its root in the same step, if there is a
   node for it; a text that gets none waits for the next step. */
static void specdec__engine_lead(specdec__engine *e)
{
    const int beside = e->roots; /* those who wait for what is read */
    specdec__tune_load *load = &e->tune->load;
    int room = (beside ? specdec__engine_most(e) : e->target.most) - beside, i, kept = 0;
    specdec__tune_slice slice;

    specdec__engine_slice(e, &slice);
    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];
        const int pending = specdec__engine_pending(t);

        const int wanted = pending ? pending + slice.root : 0;
        const int taken = specdec__tune_take(load, &slice, specdec__min_int(wanted, room), t->view.length);

        t->loads = beside ? taken : 0;
        t->lead = specdec__min_int(taken, pending);
        t->writes = !pending || (taken == wanted && t->lead < room);
        room -= t->lead + (pending && t->writes);
        e->roots += pending && t->writes;
        e->reading += t->lead;
        if (t->lead || t->writes)
            e->members[kept++] = t;
    }
    e->member_count = kept;
    if (slice.root)
        e->spare = slice.left > 0 ? slice.left : 0;
    if (!beside)
        load->rows = load->keys = 0;
}

/* A text leaves the step that is being made up. */
static void specdec__engine_leave(specdec__engine *e, const specdec *t)
{
    int i;

    e->roots -= t->writes;
    e->reading -= t->lead;
    e->tune->load.rows -= t->loads;
    for (i = 0; i < t->loads; i++)
        e->tune->load.keys -= t->view.length + i;
}

/* --- what a step speculates on ------------------------------------------------------------------------------------ */

/* Whether a step may speculate behind a text, and on what. times: of a step with so many nodes; base: those that it has
   anyway, and for other texts; others: tokens that these get; spent: seconds of drafting for them. */
static int specdec__engine_plan(const specdec *t, const double *times, int base, double others, double spent,
                                specdec__plan *plan)
{
    const specdec__engine *e = t->engine;
    int i;

    plan->fixed = specdec__engine_fixed(e);
    plan->most = specdec__min_int(plan->fixed ? e->shape.n : e->config.tree_size, specdec__engine_most(e) - base + 1);
    plan->others = others;
    if (e->config.drafting == SPECDEC_DRAFT_OFF || t->context - t->count <= e->config.tree_depth ||
        plan->most < (plan->fixed ? e->shape.n : 2) || !(times[1] > 0 || plan->fixed))
        return 0; /* the first step tells what plain decoding costs */
    for (i = 0; i <= plan->most; i++)
        plan->times[i] = plan->fixed ? 1 : i ? times[base + i - 1] + spent : 0; /* fixed: whatever they cost */
    plan->plain = plan->rate = (1 + others) / plan->times[1];
    return 1;
}

/* Seconds that a drafter needs to catch up with the text; before it was seen reading, by what the target took. */
static double specdec__engine_reading(const specdec *t, int drafter, int behind)
{
    const specdec__tune_drafter *known = &t->engine->tune->drafters[drafter];
    double each = known->reading.seconds;

    if (!(each > 0) && t->stats.prompt_tokens)
        each = known->cost * t->stats.prompt_seconds / (double)t->stats.prompt_tokens;
    return behind > SPECDEC__TUNE_BEHIND ? behind * each : 0;
}

/* Decides on the tree that a drafter with a price shall fill; when its trees grow, on whether it shall grow one.
   Returns 0 when it is not asked. */
static int specdec__engine_shape(const specdec *t, int drafter, int behind, specdec__plan *plan)
{
    const specdec__engine *e = t->engine;
    specdec__proposal *p = &e->drafters[drafter].proposals[t->at];
    const size_t bytes = (size_t)e->shape.n * sizeof *p->tree.parents;
    double rate;

    if (plan->fixed) {
        memcpy(p->tree.parents, e->shape.parents, bytes);
        memcpy(p->tree.ranks, e->shape.ranks, bytes);
        p->tree.n = e->shape.n;
    } else {
        rate = specdec__tune_shape(&e->tune->drafters[drafter], &p->tree, plan, p->levels,
                                   specdec__engine_reading(t, drafter, behind));
        if (specdec__tune_rests(e->tune, drafter, plan, rate))
            p->tree.n = 1;
        if (p->tree.n > 1)
            plan->rate = rate;
    }
    return p->tree.n > 1;
}

/* How many candidates pay best, and the rate they promise. worth[most] becomes the best probabilities, falling. */
static int specdec__engine_width(const specdec__proposal *p, const specdec__plan *plan, double drafting, double *worth,
                                 int *held, double *rate)
{
    int i;

    for (i = 0, *held = 0; i < p->tree.n; i++)
        *held = specdec__tune_insert(worth, *held, plan->most, (double)p->probability[i]);
    return plan->fixed ? *held : specdec__tune_nodes(plan, worth, *held, drafting, rate);
}

/* Chooses the candidates of the newest level that are extended next: those of whose children, should they fare as
   children have so far, at least the first would be verified. None, when that level would not pay; drafting: seconds of
   drafting so far; level: one level more. Returns how many. */
static int specdec__engine_branch(specdec__proposal *p, const specdec__tune_drafter *t, const specdec__plan *plan,
                                  double drafting, double level, int size)
{
    double worth[SPECDEC__MAX_TREE], chance[SPECDEC__TUNE_RANKS], now = 0, then = 0, least;
    int held, count = 0, i, k, n;

    specdec__engine_width(p, plan, drafting, worth, &held, &now);
    specdec__tune_acceptance(t, chance);
    for (i = p->level; i < p->tree.n; i++)
        for (k = 0; k < SPECDEC__TUNE_RANKS; k++)
            held = specdec__tune_insert(worth, held, plan->most, (double)p->probability[i] * chance[k]);
    n = plan->fixed ? held : specdec__tune_nodes(plan, worth, held, drafting + level, &then);
    if (!plan->fixed && !(then > now * 1.01))
        return 0;
    least = worth[n - 1];
    for (i = p->level; i < p->tree.n && p->ran + count + 1 < size; i++)
        if ((double)p->probability[i] * chance[0] >= least)
            p->chosen[count++] = i;
    return count;
}

/* Grows a tree: the drafter proposes level by level for as long as that pays; kept are as many of the most probable
   candidates as pay. EAGLE-2 (Li et al. 2024, arXiv 2406.16858) and OPT-Tree (Wang et al. 2024, arXiv 2406.17276), by
   the rate of Sequoia (Chen et al. 2024, arXiv 2402.12374) for the size: F(T) / (t(n) + d * level). *levels: d. */
static specdec_result specdec__engine_grow(specdec *t, int drafter, const specdec__plan *plan, int *levels,
                                           double *rate)
{
    specdec__engine *e = t->engine;
    specdec__drafter *d = &e->drafters[drafter];
    specdec__proposal *p = &d->proposals[t->at];
    const specdec__tune_drafter *known = &e->tune->drafters[drafter];
    const double level = plan->fixed ? 0 : specdec__tune_level(known, plan->times);
    double worth[SPECDEC__MAX_TREE];
    int i, n, held, count = 1;
    specdec_result result;

    p->tree.n = 1;
    for (*levels = 1; count && *levels < p->levels; ++*levels) {
        p->level = p->tree.n;
        result = d->kind->extend(d, p, count, &t->error);
        if (result)
            return result;
        p->ran += *levels > 1 ? count : 0;
        for (i = p->level; i < p->tree.n; i++)
            p->probability[i] =
                (float)((double)p->probability[p->tree.parents[i]] * specdec__tune_offer(known, p->share[i]));
        count = specdec__engine_branch(p, known, plan, (*levels + 1) * level, level, e->config.tree_size);
    }
    n = specdec__engine_width(p, plan, *levels * level, worth, &held, rate);
    result = specdec_tree_grow(&t->merged.tree, p->kept, p->tree.parents, p->probability, p->tree.n, n, &t->error);
    p->kept_count = t->merged.tree.n; /* only the number is used: the tree is made when all have proposed */
    return result;
}

/* Lets a drafter fill its tree, and keeps all of it; of a tree that the drafter chose, what pays. */
static specdec_result specdec__engine_fill(specdec *t, int drafter, const specdec__plan *plan, int *levels,
                                           double *rate)
{
    specdec__drafter *d = &t->engine->drafters[drafter];
    specdec__proposal *p = &d->proposals[t->at];
    specdec_result result;

    p->most = plan->most;
    *levels = specdec_tree_depth(&p->tree, p->depth);
    result = d->kind->fill(d, p, &t->error);
    if (result)
        return result;
    specdec__draft_keep(p, p->tree.n);
    if (!d->kind->cost)
        p->kept_count = specdec__tune_chosen(&t->engine->tune->drafters[drafter], plan, p->probability, p->tree.n,
                                             rate);
    return SPECDEC_OK;
}

/* How much of what it is behind a drafter may read in this step, so that other texts need not wait long for it. */
static int specdec__engine_readable(specdec *t, int drafter, int behind)
{
    specdec__engine *e = t->engine;
    const specdec__tune_drafter *known = &e->tune->drafters[drafter];
    const double once[2] = {0, specdec__tune_plain(e->tune)}, level = specdec__tune_level(known, once);
    const double each = known->reading.seconds > 0 ? known->reading.seconds : level / 10;
    double left = e->spare - level;
    int tokens = specdec__min_int(behind, e->config.batch);

    if (e->member_count == 1)
        return behind;
    if (behind <= SPECDEC__TUNE_BEHIND || e->spare < 0 || !(each > 0))
        return tokens;
    if (!(known->reading.seconds > 0))
        tokens = specdec__min_int(tokens, SPECDEC__TUNE_BEHIND);
    if (left < tokens * each)
        tokens = left > 0 ? (int)(left / each) : 0;
    if (!tokens && !(e->tune->load.rows > 0)) /* else it would wait for ever */
        tokens = SPECDEC__TUNE_BEHIND;
    left -= tokens * each;
    if (tokens)
        e->spare = left > 0 ? left : 0;
    return tokens;
}

/* Lets a drafter that has much to read read a part of it. */
static specdec_result specdec__engine_let_read(specdec *t, int drafter, int behind, int tokens)
{
    specdec__engine *e = t->engine;
    specdec__tune_drafter *known = &e->tune->drafters[drafter];
    specdec__drafter *d = &e->drafters[drafter];
    const double once[2] = {0, specdec__tune_plain(e->tune)}, start = specdec__os_seconds();
    specdec_result result = SPECDEC_OK;
    double seconds, level;

    d->proposals[t->at].tree.n = 1;
    if (tokens)
        result = d->kind->read(d, &d->proposals[t->at], t->count - behind + tokens, &t->error);
    if (result || !tokens)
        return result;
    seconds = specdec__os_seconds() - start;
    level = specdec__tune_level(known, once);
    specdec__tune_see(&known->reading, (seconds - (level < 0.75 * seconds ? level : 0.75 * seconds)) / tokens);
    return SPECDEC_OK;
}

/* Asks a drafter what it proposes for a text in this step, if that may pay. */
static specdec_result specdec__engine_ask(specdec *t, int drafter, specdec__plan *plan)
{
    specdec__engine *e = t->engine;
    specdec__drafter *d = &e->drafters[drafter];
    specdec__proposal *p = &d->proposals[t->at];
    const int behind = d->kind->behind ? d->kind->behind(d, t->at, t->count) : 0;
    const int fresh = t->count - behind < t->answer_from;
    double start, rate = 0;
    specdec_result result;
    int levels, readable;

    if ((d->kind->ready && !d->kind->ready(d, t->at, t->count)) ||
        (!plan->fixed && specdec__tune_naps(e->tune, drafter, t->count)) ||
        (d->kind->cost && !specdec__engine_shape(t, drafter, behind, plan)))
        return SPECDEC_OK;
    readable = d->kind->read ? specdec__engine_readable(t, drafter, behind) : behind;
    if (readable < behind)
        return specdec__engine_let_read(t, drafter, behind, readable);
    start = specdec__os_seconds();
    result = p->grows ? specdec__engine_grow(t, drafter, plan, &levels, &rate)
                      : specdec__engine_fill(t, drafter, plan, &levels, &rate);
    if (!result && !d->kind->cost && p->kept_count > 1) {
        if (specdec__tune_rests(e->tune, drafter, plan, rate))
            p->kept_count = 1;
        else if (rate > plan->rate)
            plan->rate = rate;
    }
    p->seconds = specdec__os_seconds() - start;
    if (!result)
        p->seconds -= specdec__tune_drafting(e->tune, drafter, levels, behind, fresh, p->seconds);
    return result;
}

/* What the step verifies behind a text: the drafters are asked, the last in the list first; then their trees are
   merged. A drafter whose cache has no room left proposes nothing. */
static specdec_result specdec__engine_consult(specdec *t, specdec__plan *plan, int speculate)
{
    specdec__engine *e = t->engine;
    specdec_result result = SPECDEC_OK;
    int i;

    for (i = 0; i < e->drafter_count; i++)
        specdec__draft_begin(&e->drafters[i].proposals[t->at], t->tokens, t->count, &t->settings.sampling,
                             specdec__engine_rule(e, t));
    for (i = e->drafter_count; speculate && !result && i-- > 0;) {
        result = specdec__engine_ask(t, i, plan);
        if (result == SPECDEC_ERROR_CONTEXT) {
            e->drafters[i].proposals[t->at].tree.n = e->drafters[i].proposals[t->at].kept_count = 1;
            result = SPECDEC_OK;
        }
    }
    specdec__draft_merge(&t->merged, e->drafters, e->drafter_count, t->at, t->tokens[t->count - 1],
                         speculate ? plan->most : 1);
    return result;
}

/* How probable it is that node i of a text's tree is accepted, by what its drafter knows; its parent's is known. */
static float specdec__engine_worth(const specdec *t, int i)
{
    const specdec__engine *e = t->engine;
    const specdec__merged *m = &t->merged;
    const specdec__drafter *d = &e->drafters[m->owner[i]];
    const specdec__proposal *p = &d->proposals[t->at];
    const float parent = m->worth[m->tree.parents[i]];
    double chance[SPECDEC__TUNE_RANKS], worth;

    if (p->grows || !d->kind->cost) {
        const int candidate = specdec__draft_candidate(p, i);

        worth = (double)p->probability[candidate];
        if (!p->grows)
            worth = specdec__tune_path(&e->tune->drafters[m->owner[i]], p->probability[candidate]);
    } else {
        specdec__tune_acceptance(&e->tune->drafters[m->owner[i]], chance);
        worth = (double)parent * chance[specdec__min_int(m->tree.ranks[i], SPECDEC__TUNE_RANKS) - 1];
    }
    return (float)worth < parent ? (float)worth : parent;
}

/* Of all that was proposed for several texts, keeps what together pays best: the nodes that promise most, whosever they
   are. times: of a step of so many nodes. */
static SPECDEC__NOINLINE void specdec__engine_share_out(specdec__engine *e, const double *times)
{
    const int base = e->roots + e->reading;
    double worth[SPECDEC__MAX_TREE + 1], rate;
    specdec__plan plan;
    int i, k, held = 1, left;

    plan.most = specdec__engine_most(e) - base + 1;
    plan.others = e->roots - 1;
    for (i = 1; i <= plan.most; i++)
        plan.times[i] = times[base + i - 1];
    worth[0] = 1;
    for (k = 0; k < e->member_count; k++) {
        specdec__merged *m = &e->members[k]->merged;

        m->worth[0] = 1;
        for (i = 1; i < m->tree.n; i++) {
            m->worth[i] = specdec__engine_worth(e->members[k], i);
            held = specdec__tune_insert(worth, held, plan.most, (double)m->worth[i]);
        }
    }
    left = specdec__tune_nodes(&plan, worth, held, 0, &rate) - 1;
    for (k = 0, rate = worth[left]; k < e->member_count; k++)
        left -= specdec__draft_prune(&e->members[k]->merged, e->drafters, e->drafter_count, e->members[k]->at,
                                     (float)rate, left);
}

/* Chooses the trees of a step, text by text: what those before have taken is no longer to be had. */
static SPECDEC__NOINLINE void specdec__engine_draft(specdec__engine *e)
{
    const int least = e->roots + e->reading;
    double times[SPECDEC__MAX_TREE + 1], others = e->roots - 1, spent = 0;
    int i, base = least, kept = 0;
    specdec__plan plan;

    times[1] = 0;
    if (e->drafter_count)
        specdec__tune_times(e->tune, times, e->member_count > 1 ? SPECDEC__MAX_TREE
                                            : specdec__min_int(SPECDEC__MAX_TREE, least + e->config.tree_size));
    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];
        const double start = specdec__os_seconds();
        const int speculate = t->writes && specdec__engine_plan(t, times, base, others, spent, &plan);
        specdec_result result;

        e->pool.cancel = &t->cancel;
        result = specdec__engine_consult(t, &plan, speculate);
        if (result) {
            specdec__engine_drop(t, result);
            specdec__engine_leave(e, t);
            continue;
        }
        e->members[kept++] = t;
        if (t->merged.tree.n == 1)
            continue;
        spent += specdec__os_seconds() - start;
        base += t->merged.tree.n - 1;
        if (!plan.fixed && plan.rate > plan.plain) /* what its guesses promise */
            others = plan.rate * plan.times[t->merged.tree.n] - 1;
    }
    e->member_count = kept;
    if (kept > 1 && base > least && !specdec__engine_fixed(e))
        specdec__engine_share_out(e, times);
}

/* --- the step ----------------------------------------------------------------------------------------------------- */

/* Slots for all nodes. A text for whose tree there are too few goes on with the root alone, one without any is left
   out. */
static void specdec__engine_reserve(specdec__engine *e)
{
    int i, kept = 0;

    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];
        int *nodes = &t->merged.tree.n;

        if (!t->writes)
            *nodes = 0;
        if (!specdec__view_reserve(&t->view, &e->target.kv, t->lead + *nodes) && *nodes > 1) {
            specdec__view_unreserve(&t->view, &e->target.kv);
            specdec__draft_prune(&t->merged, e->drafters, e->drafter_count, t->at, 2, 0);
        }
        if (specdec__view_reserve(&t->view, &e->target.kv, t->lead + *nodes)) {
            e->members[kept++] = t;
            continue;
        }
        specdec__engine_drop(t, specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT,
                                              "no room in the cache, which all texts share, for %d more tokens",
                                              t->lead + *nodes));
        specdec__engine_leave(e, t);
    }
    e->member_count = kept;
}

/* The members' unread tokens and trees become a batch for the target. */
static specdec__batch specdec__engine_batch(specdec__engine *e)
{
    specdec__context *c = &e->target;
    specdec__batch batch;
    int i, k, n = 0, rows = 0;

    for (k = 0; k < e->member_count; k++) {
        specdec *t = e->members[k];
        const specdec_tree *tree = &t->merged.tree;
        const int root = n + t->lead;

        t->first = n;
        t->row = rows;
        rows += tree->n;
        for (; n < root + tree->n; n++) {
            c->views[n] = &t->view;
            c->wanted[n] = n >= root;
        }
        for (i = t->first; i < root; i++) {
            c->tokens[i] = t->tokens[t->view.length + i - t->first];
            c->parents[i] = i > t->first ? i - 1 : -1;
        }
        for (i = 0; i < tree->n; i++) {
            c->tokens[root + i] = t->merged.tokens[i];
            c->parents[root + i] = i ? root + tree->parents[i] : t->lead ? root - 1 : -1;
        }
    }
    batch = specdec__forward_batch(c, 0, n);
    batch.wanted = c->wanted;
    return batch;
}

/* Notes how the children of a reached node fared; child: which of them was accepted, or -1; token: what came. */
static void specdec__engine_note(specdec *t, int node, int child, int32_t token)
{
    specdec__engine *e = t->engine;
    const specdec_tree *tree = &t->merged.tree;
    int i, accepted = -1;

    for (i = specdec__tree_child(tree, node, node + 1); i < tree->n; i = specdec__tree_child(tree, node, i + 1)) {
        int rank = specdec__min_int(tree->ranks[i], (int)SPECDEC__COUNT(t->stats.offered_by_rank)) - 1;
        int hit = child-- == 0;

        t->stats.offered_by_rank[rank]++;
        t->stats.accepted_by_rank[rank] += hit;
        accepted = hit ? i : accepted;
    }
    for (i = 0; i < e->drafter_count; i++) {
        const specdec__proposal *p = &e->drafters[i].proposals[t->at];
        int candidate = specdec__draft_candidate(p, node);

        if (candidate >= 0)
            specdec__tune_note(&e->tune->drafters[i], p, candidate, accepted, token);
    }
}

/* Decides by a rejection rule at a node whose children hold children[count]. */
static void specdec__engine_judge(specdec *t, int node, const float *logits, const int32_t *children, int count,
                                  specdec_verdict *verdict)
{
    specdec__engine *e = t->engine;
    const int vocab = e->target_model->vocab_size;
    const specdec__proposal *p = &e->drafters[0].proposals[t->at]; /* nobody else drafts */
    specdec_uniform uniform;
    specdec_choice choice;
    specdec__row row;

    specdec__row_init(&row, e->kernels, &t->settings.sampling, e->chooser.items, logits, vocab, t->tokens, t->count);
    specdec__row_weights(&row, e->target_distribution);
    uniform.seed = t->settings.sampling.seed;
    uniform.position = (uint64_t)t->count;
    uniform.decision = 0;
    choice.target = e->target_distribution;
    choice.draft = NULL;
    if (count && e->rule != SPECDEC_RULE_TOP_K)
        choice.draft = p->distributions + (size_t)specdec__draft_candidate(p, node) * (size_t)vocab;
    choice.children = children;
    choice.vocab = vocab;
    choice.child_count = count;
    choice.random = &uniform;
    verdict->token = 0;
    specdec__verify_rules[count ? e->rule : SPECDEC_RULE_TOP_K].verify(e->kernels->residuals, &choice, verdict);
}

/* Notes what the row that the next token comes from says about it. */
static void specdec__engine_record(specdec *t, const float *logits, int32_t token)
{
    specdec__engine *e = t->engine;
    const int vocab = e->target_model->vocab_size, k = specdec__min_int(t->best_count, vocab);
    specdec_candidate *best = t->best + (size_t)t->count * (size_t)t->best_count;
    double total = 0;
    float highest;
    int i;

    specdec__sample_greedy(e->kernels, logits, vocab, k, best);
    highest = best[0].logit;
    e->kernels->weights(logits, vocab, highest, 1.0f, e->target_distribution);
    for (i = 0; i < vocab; i++)
        total += (double)e->target_distribution[i];
    total = specdec__log_double(total);
    for (i = 0; i < k; i++)
        best[i].logit = (float)((double)(best[i].logit - highest) - total);
    t->logprobs[t->count] = (float)((double)(specdec__sample_clean(logits[token]) - highest) - total);
}

/* Appends a token, which was chosen from a row of logits, to the text. */
static void specdec__engine_write(specdec *t, const float *logits, int32_t token)
{
    if (t->logprobs)
        specdec__engine_record(t, logits, token);
    t->tokens[t->count++] = token;
}

/* Forbids the tokens that may not be chosen here: the child token, and the fork token where there can be no fork.
   own[2] becomes what the model says of them. */
static void specdec__engine_mask(const specdec *t, float *logits, float *own)
{
    const specdec__engine *e = t->engine;
    const float forbidden = specdec__float_from_bits(0xff800000u); /* no bias lifts it */

    if (e->fork_token < 0)
        return;
    own[0] = logits[e->child_token];
    own[1] = logits[e->fork_token];
    logits[e->child_token] = forbidden;
    if (t->forks >= e->config.forks || t->depth >= e->config.fork_depth || t->count + 2 >= t->context ||
        specdec__vocab_type(&t->model->vocab, (uint32_t)t->tokens[t->count - 1]) == SPECDEC__TOKEN_CONTROL)
        logits[e->fork_token] = forbidden;
}

/* Puts that back: log-probabilities are those of the model. */
static void specdec__engine_unmask(const specdec__engine *e, float *logits, const float *own)
{
    if (e->fork_token < 0)
        return;
    logits[e->child_token] = own[0];
    logits[e->fork_token] = own[1];
}

/* Notes that the text forks behind the token that it has just got. Returns whether it does. */
static int specdec__engine_forks(specdec *t)
{
    const specdec__engine *e = t->engine;
    const specdec_hooks *hooks = &e->config.hooks;
    int i, count = 0;

    if (t->tokens[t->count - 1] == e->fork_token) {
        t->forced[0] = e->child_token;
        count = 1;
    } else if (hooks->fork && t->forks < e->config.forks && t->depth < e->config.fork_depth) {
        count = hooks->fork(hooks->user_data, t->tokens, t->count, t->forced);
        count = count <= SPECDEC_FORK_TOKENS && t->count + count + 1 < t->context ? count : 0;
    }
    for (i = 0; i < count; i++)
        if (t->forced[i] < 0 || t->forced[i] >= t->model->vocab_size)
            count = 0;
    t->forced_count = specdec__max_int(count, 0);
    return count > 0;
}

/* The token that follows by a row of logits when nothing was guessed, or when guesses are coupled. */
static int32_t specdec__engine_choose(specdec *t, const float *logits)
{
    specdec__engine *e = t->engine;
    specdec_candidate best;

    best.token = 0;
    e->chooser.sampling = &t->settings.sampling;
    specdec__choose(&e->chooser, logits, e->target_model->vocab_size, t->tokens, t->count, 1, &best);
    return best.token;
}

/* Whether a step writes nothing behind the token that a text has just got: the text ends, or it forks. Guesses beyond
   the limit are kept, as it may be raised, unless they could be forks. */
static int specdec__engine_stops(specdec *t)
{
    const specdec__engine *e = t->engine;
    const specdec_stop why = specdec__stream_ended(t, t->count);

    if (why == SPECDEC_STOP_NONE)
        return specdec__engine_forks(t);
    return why == SPECDEC_STOP_END || e->fork_token >= 0 || e->config.hooks.fork;
}

/* The engine's specdec_verify_node: coupled, greedy, or by a rejection rule. Appends the token to the text. */
static specdec_result specdec__engine_decide(void *text, int node, const int32_t *children, int count,
                                             specdec_verdict *verdict)
{
    specdec *t = (specdec *)text;
    const specdec__engine *e = t->engine;
    float *logits = e->target.logits + (size_t)(t->row + node) * (size_t)e->target_model->vocab_size;
    float own[2];

    specdec__engine_mask(t, logits, own);
    if (!SPECDEC__VERIFIERS || specdec__engine_rule(e, t) == SPECDEC_RULE_COUPLED)
        specdec_verify_match(verdict, children, count, specdec__engine_choose(t, logits));
    else
        specdec__engine_judge(t, node, logits, children, count, verdict);
    specdec__engine_unmask(e, logits, own);
    specdec__engine_note(t, node, verdict->child, verdict->token);
    specdec__engine_write(t, logits, verdict->token);
    if (specdec__engine_stops(t))
        verdict->child = -1;
    return SPECDEC_OK;
}

/* Counts a step by the nodes and levels of its tree. When there are too many kinds, the rarest makes room. */
static void specdec__engine_count_tree(specdec_stats *stats, int nodes, int levels)
{
    specdec_tree_count *trees = stats->trees, *at = trees;
    int i;

    for (i = 0; i < SPECDEC_STATS_TREES; i++) {
        if (trees[i].nodes == nodes && trees[i].levels == levels) {
            trees[i].steps++;
            return;
        }
        at = trees[i].steps < at->steps ? &trees[i] : at;
    }
    stats->steps_other_trees += at->steps;
    at->nodes = nodes;
    at->levels = levels;
    at->steps = 1;
}

/* Walks the tree of a text: the tokens that are accepted are appended to it, their nodes lie in t->path, the root
   first. Then keys and values of what was read and accepted are kept, and the drafters hear of it. */
static void specdec__engine_accept(specdec *t)
{
    specdec__engine *e = t->engine;
    const int before = t->count, from = t->view.length;
    int32_t accepted[SPECDEC__MAX_TREE];
    int i;

    t->length = 0;
    t->path[0] = 0;
    if (t->merged.tree.n && specdec_verify_walk(t->path + 1, accepted, &t->length, &t->merged.tree, t->merged.tokens,
                                                specdec__engine_decide, t, &t->error))
        return;
    for (i = 0; i < t->lead; i++)
        e->target.path[i] = i;
    for (i = 0; i < t->length; i++)
        e->target.path[t->lead + i] = t->lead + t->path[i];
    specdec__view_commit(&t->view, &e->target.kv, e->target.path, t->lead + t->length);
    specdec__view_unreserve(&t->view, &e->target.kv);
    for (i = 0; t->length && i < e->drafter_count; i++)
        specdec__draft_accept(&e->drafters[i], &e->drafters[i].proposals[t->at], t->path, t->length);
    specdec__engine_follow(t, from, t->lead + t->length, t->first, e->target.path,
                           t->length ? t->row + t->path[t->length - 1] : -1);
    t->stats.tokens += t->count - before;
}

/* Counts what a text's tree has brought to whom. */
static void specdec__engine_outcome(specdec *t, specdec__tune_outcome *outcome)
{
    specdec__engine *e = t->engine;
    int nodes[SPECDEC__MAX_DRAFTERS] = {0}, i, at = 1;

    for (i = 1; i < t->merged.tree.n; i++) {
        const int owner = t->merged.owner[i];
        const specdec__drafter *d = &e->drafters[owner];
        const specdec__proposal *p = &d->proposals[t->at];
        int came = at < t->length && t->path[at] == i;

        at += came;
        nodes[owner]++;
        outcome->nodes[owner]++;
        outcome->came[owner] += came;
        if (!d->kind->cost)
            specdec__tune_predicted(&e->tune->drafters[owner], p->probability[specdec__draft_candidate(p, i)], came);
    }
    for (i = 0; i < e->drafter_count; i++) {
        const specdec__drafter *d = &e->drafters[i];

        if (d->kind->cost || nodes[i]) /* a look that found nothing is free */
            outcome->drafting[i] += d->proposals[t->at].seconds;
        t->stats.steps_by_drafter[d->drafting] += nodes[i] > 0;
    }
}

/* What the step has taught: what its nodes cost, and what they brought. */
static SPECDEC__NOINLINE void specdec__engine_learn(specdec__engine *e, int width, double seconds)
{
    specdec__tune_load *load = &e->tune->load;
    const int loaded = (int)load->rows, nodes = width - loaded;
    specdec__tune_outcome outcome;
    int i;

    if (!e->roots || width > SPECDEC__MAX_TREE || nodes < 1)
        return;
    memset(&outcome, 0, sizeof outcome);
    seconds = seconds > 0 ? seconds : 1 + 0.1 * (width - 1);
    outcome.seconds = seconds - specdec__tune_loaded(load);
    outcome.base = e->roots + e->reading - loaded;
    outcome.texts = e->roots;
    if (loaded) {
        specdec__tune_weigh(e->tune, nodes, seconds);
    } else {
        specdec__tune_step(e->tune, nodes, seconds);
        if (e->room.views > 1)
            specdec__tune_breathe(e->tune, nodes, seconds);
    }
    for (i = 0; i < e->member_count; i++)
        specdec__engine_outcome(e->members[i], &outcome);
    specdec__tune_fade(e->tune);
    specdec__tune_settle(e->tune, &outcome);
}

/* What a step took, for a text that took part; drafting: of that, before the target ran. */
static void specdec__engine_count(specdec *t, int width, double seconds, double drafting, double verifying)
{
    const int nodes = t->merged.tree.n;
    int i;

    if (!nodes) {
        t->stats.prompt_seconds += seconds;
        return;
    }
    for (i = 0; 1 << i < width && i < (int)SPECDEC__COUNT(t->stats.steps_by_width) - 1; i++)
        continue;
    t->stats.steps_by_width[i]++;
    specdec__engine_count_tree(&t->stats, nodes, specdec_tree_depth(&t->merged.tree, NULL));
    t->stats.drafted += nodes - 1;
    t->stats.accepted += t->length - 1;
    t->stats.draft_seconds += drafting;
    t->stats.verify_seconds += verifying;
    t->stats.seconds += seconds;
    t->stats.steps++;
}

/* The first token of an answer is out. */
static void specdec__engine_answered(specdec *t, double now)
{
    if (t->prompted_at > 0)
        t->stats.first_token_seconds = now - t->prompted_at;
    t->prompted_at = 0;
}

/* Runs the step that was made up. */
static void specdec__engine_run(specdec__engine *e, double start)
{
    const double drafted = specdec__os_seconds();
    specdec__batch batch = specdec__engine_batch(e);
    double verified, now;
    specdec_error error;
    int i;

    e->pool.cancel = e->member_count == 1 ? &e->members[0]->cancel : &e->nobody;
    e->row_of = NULL;
    if (specdec__forward(&e->target, &batch, &error)) { /* nobody but its only text can cancel it */
        specdec__engine_drop(e->members[0], specdec__fail(&e->members[0]->error, error.code, "%s", error.text));
        return;
    }
    verified = specdec__os_seconds();
    e->pool.cancel = &e->nobody; /* what drafters read of it, they read to the end */
    for (i = 0; i < e->member_count; i++)
        specdec__engine_accept(e->members[i]);
    specdec__engine_learn(e, batch.n, verified - drafted);
    now = specdec__os_seconds();
    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];

        specdec__engine_count(t, batch.n, now - start, drafted - start, verified - drafted);
        if (t->length)
            specdec__engine_answered(t, now);
        if (t->forced_count)
            specdec__engine_bear(t);
        if (t->parent && specdec__stream_ended(t, t->count))
            specdec__engine_release(t);
    }
}

/* The first token of an answer, by the row that the prompt has left. */
static void specdec__engine_begin_answer(specdec *t)
{
    float *logits = t->engine->target.logits, own[2];
    double start = specdec__os_seconds();
    int32_t token;

    specdec__engine_mask(t, logits, own);
    token = specdec__engine_choose(t, logits);
    specdec__engine_unmask(t->engine, logits, own);
    specdec__engine_write(t, logits, token);
    if (specdec__engine_stops(t) && t->forced_count)
        specdec__engine_bear(t);
    t->from_row = 0;
    t->engine->row_of = NULL;
    specdec__engine_count_tree(&t->stats, 1, 1);
    t->stats.tokens++;
    t->stats.steps++;
    t->stats.seconds += specdec__os_seconds() - start;
    specdec__engine_answered(t, specdec__os_seconds());
}

/* One step for all texts that have something to do; t, if not NULL, is among them, and needs a token. DONE: nobody
   has. Errors are those of t; what goes wrong with others they are told by their next call. */
static specdec_result specdec__engine_step(specdec__engine *e, specdec *t)
{
    double start = specdec__os_seconds();
    specdec_result result = SPECDEC_OK;

    if (t && t->from_row && e->row_of == t) {
        specdec__engine_begin_answer(t);
        return SPECDEC_OK;
    }
    if (t && e->room.views == 1) { /* nobody else waits: after a failed prompt, a rewind, specdec_logits */
        const specdec__rows rows = specdec__forward_wanted(t->count - t->from_row);

        if (t->from_row || specdec__engine_pending(t) > 0)
            result = specdec__engine_prefill(t, t->count - !t->from_row, &rows);
        if (result)
            return result;
        if (t->from_row) {
            specdec__engine_begin_answer(t);
            return SPECDEC_OK;
        }
    }
    specdec__engine_gather(e, t);
    specdec__engine_lead(e);
    if (e->member_count)
        specdec__engine_draft(e);
    specdec__engine_reserve(e);
    if (e->member_count)
        specdec__engine_run(e, start);
    else if (!t)
        return SPECDEC_DONE;
    if (t) {
        result = t->failed;
        t->failed = SPECDEC_OK;
    }
    return result;
}

/* A pending cancellation ends one call. */
static specdec_result specdec__engine_uncancel(specdec *t, specdec_result result)
{
    t->cancelled = result == SPECDEC_ERROR_CANCELLED;
    if (t->cancelled)
        SPECDEC__STORE(&t->cancel, 0);
    return result;
}

/* =====================================================================================================================
 * >>public (private): bodies of the API. May call: every section above
 * ================================================================================================================== */

const char *specdec_result_text(specdec_result result)
{
    static const char *const texts[SPECDEC_RESULT_COUNT] = {
#define SPECDEC__RESULT(name, text) text,
        SPECDEC_RESULTS(SPECDEC__RESULT)
#undef SPECDEC__RESULT
    };

    return (unsigned)result < SPECDEC_RESULT_COUNT ? texts[result] : "unknown result";
}

const char *specdec_version(void) { return SPECDEC_VERSION; }

const char *specdec_error_text(const specdec *engine) { return engine ? engine->error.text : ""; }

/* Bytes of a block whose layout used `used`: whatever the block's own alignment is. */
static size_t specdec__block_bytes(size_t used) { return specdec__size_add(used, SPECDEC__CACHE_LINE - 1); }

/* An arena over a block, from its first aligned byte; it is full exactly when the block is below
   specdec__block_bytes. */
static specdec__arena specdec__block_arena(void *memory, size_t bytes)
{
    specdec__arena arena;
    size_t skip = (size_t)(-(uintptr_t)memory & (SPECDEC__CACHE_LINE - 1));

    arena.base = (unsigned char *)memory + skip;
    arena.size = bytes < SPECDEC__CACHE_LINE - 1 ? 0 : bytes - (SPECDEC__CACHE_LINE - 1);
    arena.used = 0;
    return arena;
}

/* Bytes of a block for what an arena has counted; *bytes is left alone on failure. */
static specdec_result specdec__counted_bytes(const specdec__arena *arena, size_t *bytes, specdec_error *error)
{
    size_t needed = specdec__block_bytes(arena->used);

    if (needed == SIZE_MAX)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the configuration needs more than all memory");
    *bytes = needed;
    return SPECDEC_OK;
}

static specdec_result specdec__too_small(size_t bytes, size_t needed, specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_MEMORY, "the block has %zu bytes, %zu are needed", bytes, needed);
}

/* Refuses a call with a NULL where something must be. */
static specdec_result specdec__is_missing(specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an argument is NULL");
}

/* Refuses a call on no text, on one that is closed, or one without what it needs (given: it has that). */
static specdec_result specdec__check_call(specdec *t, int given)
{
    if (!t)
        return SPECDEC_ERROR_ARGUMENT;
    if (!t->open)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "this text is closed");
    return given ? SPECDEC_OK : specdec__is_missing(&t->error);
}

/* Everything that an engine needs, from a configuration that it has a copy of, in an arena. */
static specdec_result specdec__engine_build(specdec__engine *e, specdec__arena *arena, specdec_error *error)
{
    specdec__stop_scan stop;
    specdec_result result;

    specdec__engine_parts(e, arena);
    if ((result = specdec__engine_config(&e->config, error)) == SPECDEC_OK &&
        (result = specdec__kernels_init(e->kernels, e->config.isa, error)) == SPECDEC_OK &&
        (result = specdec__stream_check(&e->config.settings, &stop, error)) == SPECDEC_OK &&
        (result = specdec__engine_layout(e, arena, error)) == SPECDEC_OK)
        result = specdec__engine_repack(e, arena, error);
    return result;
}

/* An engine that is only measured lies on the stack, in several parts: no frame is to be large. This is the last. */
static SPECDEC__NOINLINE specdec_result specdec__measure(const specdec_config *config, specdec__model **own,
                                                         specdec__kernels *kernels, specdec__drafter *drafters,
                                                         size_t *bytes, specdec_error *error)
{
    specdec__arena arena = {NULL, 0, 0};
    specdec__engine engine;
    specdec_result result;

    memset(&engine, 0, sizeof engine);
    engine.config = *config;
    memcpy(engine.own, own, sizeof engine.own);
    engine.kernels = kernels;
    engine.drafters = drafters;
    SPECDEC__TAKE(&arena, specdec__engine, 1);
    result = specdec__engine_build(&engine, &arena, error);
    if (!result)
        result = specdec__counted_bytes(&arena, bytes, error);
    specdec__engine_close(&engine);
    return result;
}

/* The one before. */
static SPECDEC__NOINLINE specdec_result specdec__measure_parts(const specdec_config *config, specdec__model **own,
                                                               size_t *bytes, specdec_error *error)
{
    specdec__drafter drafters[SPECDEC__MAX_DRAFTERS];
    specdec__kernels kernels;

    memset(drafters, 0, sizeof drafters);
    return specdec__measure(config, own, &kernels, drafters, bytes, error);
}

/* The others: one for each model. */
static SPECDEC__NOINLINE specdec_result specdec__measure_models(const specdec_config *config, specdec__model **own,
                                                                int count, size_t *bytes, specdec_error *error)
{
    specdec__model model;

    memset(&model, 0, sizeof model);
    own[count] = &model;
    return count + 1 < SPECDEC__MAX_MODELS ? specdec__measure_models(config, own, count + 1, bytes, error)
                                           : specdec__measure_parts(config, own, bytes, error);
}

specdec_result specdec_memory_needed(const specdec_config *config, size_t *bytes, specdec_error *error)
{
    specdec__model *own[SPECDEC__MAX_MODELS];

    if (!config || !bytes)
        return specdec__is_missing(error);
    return specdec__measure_models(config, own, 0, bytes, error);
}

specdec_result specdec_init(specdec **engine, const specdec_config *config, void *memory, size_t bytes,
                            specdec_error *error)
{
    specdec__arena arena;
    specdec__engine *e;
    size_t needed;
    specdec_result result;

    if (!engine)
        return specdec__is_missing(error);
    *engine = NULL;
    result = specdec_memory_needed(config, &needed, error);
    if (result)
        return result;
    if (!memory || bytes < needed)
        return specdec__too_small(memory ? bytes : 0, needed, error);
    arena = specdec__block_arena(memory, needed);
    e = SPECDEC__TAKE(&arena, specdec__engine, 1);
    e->config = *config;
    e->memory_bytes = needed;
    result = specdec__engine_build(e, &arena, error);
    if (!result)
        result = arena.used == SIZE_MAX ? specdec__too_small(bytes, needed, error) /* a file has changed */
                                        : specdec__engine_start(e, error);
    if (result) {
        specdec__pool_deinit(&e->pool);
        specdec__engine_close(e);
        return result;
    }
    *engine = &e->texts[0];
    return SPECDEC_OK;
}

void specdec_deinit(specdec *t)
{
    if (!t)
        return;
    specdec__pool_deinit(&t->engine->pool);
    specdec__engine_close(t->engine);
}

specdec_result specdec_open(specdec *t, specdec **opened)
{
    if (!t || !opened)
        return t ? specdec__is_missing(&t->error) : SPECDEC_ERROR_ARGUMENT;
    *opened = specdec__engine_vacancy(t->engine);
    if (!*opened)
        return specdec__fail(&t->error, SPECDEC_ERROR_MEMORY, "all of the %d texts are open (config.texts)",
                             t->engine->room.views);
    specdec__engine_open(*opened);
    return SPECDEC_OK;
}

specdec_result specdec_fork(specdec *t, specdec **fork)
{
    specdec_result result = specdec__check_call(t, fork != NULL);
    int born;

    if (result || (result = specdec_open(t, fork)) != SPECDEC_OK)
        return result;
    specdec__engine_copy(*fork, t);
    born = specdec__engine_born(t, t->handed_out);
    if (born) { /* the copy writes its stock anew, to get such children for itself */
        specdec__engine_unstock(*fork);
        (*fork)->forks -= born;
    }
    return SPECDEC_OK;
}

void specdec_close(specdec *t)
{
    if (!t || !t->open)
        return;
    specdec__engine_disown(t, 0);
    specdec__engine_vacate(t);
}

specdec *specdec_child(specdec *t, int i)
{
    specdec *found = NULL;
    int at = t ? t->answer_from : 0, k;

    for (; t && t->open && i >= 0; i--, at = found->fork_at) { /* the next fork behind `at` */
        found = NULL;
        for (k = 0; k < t->engine->room.views; k++) {
            specdec *x = &t->engine->texts[k];

            if (x->open && x->parent == t && x->fork_at > at && (!found || x->fork_at < found->fork_at))
                found = x;
        }
        if (!found)
            break;
    }
    return found;
}

/* Appends bytes to what is being restored, as far as there is room. */
static void specdec__restore_bytes(const unsigned char *from, size_t count, char *bytes, size_t room, size_t *length)
{
    if (*length < room)
        memcpy(bytes + *length, from, count < room - *length ? count : room - *length);
    *length += count;
}

/* Appends a text's answer, and in their places those of its children. A stop string ends it, but not across a fork. */
static void specdec__restore(specdec *t, char *bytes, size_t room, size_t *length)
{
    unsigned char *piece = t->piece + t->freed;
    specdec *child = specdec_child(t, 0);
    specdec__text_stream stream;
    specdec__stop_scan stop;
    size_t more, written;
    int i, k = 0;

    specdec__stream_check(&t->settings, &stop, NULL);
    specdec__text_stream_begin(&stream, &t->model->vocab, t->answer_from ? t->tokens[t->answer_from - 1] : -1,
                               t->settings.show_special);
    for (i = t->answer_from; i < t->count && !stop.stopped; i++) {
        specdec__text_stream_push(&stream, &t->model->vocab, t->tokens[i], t->token_text, t->text_room, &more, NULL);
        specdec__stop_push(&stop, t->token_text, more, piece, 2 * t->text_room, &written, NULL);
        specdec__restore_bytes(piece, written, bytes, room, length);
        if (child && child->fork_at == i + 1 && !stop.stopped) {
            specdec__restore_bytes(piece, specdec__stop_end(&stop, piece), bytes, room, length);
            specdec__restore(child, bytes, room, length);
            child = specdec_child(t, ++k);
        }
    }
    if (stop.stopped)
        return;
    more = specdec__text_stream_end(&stream, t->token_text);
    specdec__stop_push(&stop, t->token_text, more, piece, 2 * t->text_room, &written, NULL);
    specdec__restore_bytes(piece, written, bytes, room, length);
    if (!stop.stopped)
        specdec__restore_bytes(piece, specdec__stop_end(&stop, piece), bytes, room, length);
}

specdec_result specdec_restore(specdec *t, char *bytes, size_t room, size_t *length)
{
    specdec_result result = specdec__check_call(t, length && (bytes || !room));

    if (result)
        return result;
    *length = 0;
    specdec__restore(t, bytes, room, length);
    return *length <= room ? SPECDEC_OK
                           : specdec__fail(&t->error, SPECDEC_ERROR_BUFFER, "the answer has %zu bytes, there is room "
                                           "for %zu", *length, room);
}

/* The index of n-grams; NULL, and an error: the engine has none. */
static specdec__ngram *specdec__seen(specdec *t)
{
    const specdec__engine *e = t->engine;
    int i;

    for (i = 0; i < e->drafter_count; i++)
        if (e->drafters[i].drafting == SPECDEC_DRAFT_NGRAM)
            return (specdec__ngram *)e->drafters[i].state;
    specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "this engine does not draft from n-grams");
    return NULL;
}

specdec_result specdec_save_seen(specdec *t, void *data, size_t room, size_t *bytes)
{
    const specdec__ngram *index;

    if (!t || !bytes)
        return t ? specdec__is_missing(&t->error) : SPECDEC_ERROR_ARGUMENT;
    index = specdec__seen(t);
    return index ? specdec__ngram_save(index, specdec__draft_ngram_fingerprint(&t->model->vocab), data, room, bytes,
                                       &t->error)
                 : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_load_seen(specdec *t, const void *data, size_t size)
{
    specdec__ngram *index;

    if (!t || !data)
        return t ? specdec__is_missing(&t->error) : SPECDEC_ERROR_ARGUMENT;
    index = specdec__seen(t);
    return index ? specdec__ngram_load(index, specdec__draft_ngram_fingerprint(&t->model->vocab), t->model->vocab_size,
                                       data, size, &t->error)
                 : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_set(specdec *t, const specdec_settings *settings)
{
    specdec_result result = specdec__check_call(t, settings != NULL);
    specdec__stop_scan stop;

    if (result || (result = specdec__stream_check(settings, &stop, &t->error)) != SPECDEC_OK)
        return result;
    if (t->handed_out < t->count && !specdec__stream_samples_alike(&settings->sampling, &t->settings.sampling))
        specdec__engine_unstock(t);
    specdec__stream_rescan(t, &stop);
    t->stream.show_special = settings->show_special;
    t->settings = *settings;
    return SPECDEC_OK;
}

void specdec_get_settings(const specdec *t, specdec_settings *settings)
{
    if (t && settings)
        *settings = t->settings;
}

/* Text straight into the engine's own token buffer, behind the text. */
static specdec_result specdec__prompt_text(specdec *t, const char *text, size_t length, int special)
{
    const int begin = t->handed_out ? 0 : SPECDEC_TOKENIZE_BEGIN;
    size_t count, room = (size_t)specdec__max_int(t->context - t->handed_out, 0);
    specdec_result result;

    length = length == SPECDEC_WHOLE_STRING ? strlen(text) : length;
    if (length > t->engine->chat_bytes)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT,
                             "a text of %zu bytes; with this context, %zu are the most", length, t->engine->chat_bytes);
    result = specdec__tokenize(&t->model->vocab, text, length, begin | special, t->tokens + t->count, room, &count,
                               t->engine->scratch, t->engine->scratch_bytes, &t->error);
    if (result == SPECDEC_ERROR_BUFFER)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT, "the prompt has %zu tokens, the context has room for %d",
                             count, specdec__max_int((int)room - 1, 0));
    if (result)
        return result;
    return specdec__engine_uncancel(t, specdec__engine_prompt(t, t->tokens + t->count, (int)count, NULL));
}

specdec_result specdec_prompt(specdec *t, const char *text, size_t length)
{
    specdec_result result = specdec__check_call(t, text || !length);

    return result ? result : specdec__prompt_text(t, text, length, 0);
}

specdec_result specdec_prompt_tokens(specdec *t, const int32_t *tokens, int count)
{
    return specdec_prompt_logits(t, tokens, count, NULL);
}

specdec_result specdec_prompt_logits(specdec *t, const int32_t *tokens, int count, float *logits)
{
    specdec_result result = specdec__check_call(t, 1);

    specdec__rows wanted = specdec__forward_wanted(0);

    wanted.logits = logits;
    return result ? result
                  : specdec__engine_uncancel(t, specdec__engine_prompt(t, tokens, count, logits ? &wanted : NULL));
}

specdec_result specdec_prompt_states(specdec *t, const int32_t *tokens, int count, const int *layers, int layer_count,
                                     float *states)
{
    specdec_result result = specdec__check_call(t, layers && layer_count > 0 && states);
    specdec__rows wanted = specdec__forward_wanted(0);
    int i;

    for (i = 0; !result && i < layer_count; i++)
        if (layers[i] < SPECDEC_STATE_FINAL || layers[i] > t->model->layers)
            return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "states after %d layers: the target has %d",
                                 layers[i], t->model->layers);
    wanted.taps.layers = layers;
    wanted.taps.count = layer_count;
    wanted.taps.out = states;
    return result ? result : specdec__engine_uncancel(t, specdec__engine_prompt(t, tokens, count, &wanted));
}

/* What the format has behind an answer and the text still lacks: all of it when a limit or a stop string ended the
   answer, the part behind the end token otherwise. */
static specdec__bytes specdec__chat_turn_end(const specdec *t)
{
    const char *after = t->engine->chat->after[SPECDEC_ASSISTANT];
    specdec__bytes end, out;

    out.data = (const unsigned char *)after;
    out.size = t->handed_out ? strlen(after) : 0;
    if (!t->handed_out || !specdec__vocab_is_end(&t->model->vocab, t->tokens[t->handed_out - 1]))
        return out;
    end = specdec__vocab_text(&t->model->vocab, (uint32_t)t->tokens[t->handed_out - 1]);
    if (end.size <= out.size && memcmp(out.data, end.data, end.size) == 0) {
        out.data += end.size;
        out.size -= end.size;
    }
    return out;
}

specdec_result specdec_chat(specdec *t, const specdec_message *messages, int count)
{
    specdec__bytes turn;
    size_t needed;
    specdec_result result = specdec__check_call(t, messages != NULL);

    if (result)
        return result;
    if (!SPECDEC__CHATS)
        return specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED,
                             "SPECDEC_NO_CHAT leaves chat formats out of this build");
    if (!t->engine->chat)
        return specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED,
                             "the model names no chat format that is known; choose one");
    if (count < 1)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "%d messages", count);
    turn = specdec__chat_turn_end(t);
    if (turn.size < t->engine->chat_bytes)
        memcpy(t->engine->chat_text, turn.data, turn.size);
    else
        turn.size = 0;
    result = specdec__chat_render(t->engine->chat, messages, count, 1, t->engine->chat_text + turn.size,
                                  t->engine->chat_bytes - turn.size, &needed, &t->error);
    needed += turn.size;
    if (result == SPECDEC_ERROR_BUFFER)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT,
                             "a conversation of %zu bytes; with this context, %zu are the most", needed,
                             t->engine->chat_bytes);
    return result ? result : specdec__prompt_text(t, t->engine->chat_text, needed, SPECDEC_TOKENIZE_SPECIAL);
}

/* Makes sure that there is a token to hand out; with work = 0 without a step. */
static specdec_result specdec__next_token(specdec *t, int work)
{
    specdec_result result;

    if (!t->count)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "nothing was prompted");
    t->cancelled = 0;
    for (;;) {
        t->finished = specdec__stream_ended(t, t->handed_out) != SPECDEC_STOP_NONE;
        if (t->finished)
            return SPECDEC_DONE;
        if (t->handed_out < t->count)
            return SPECDEC_OK;
        result = t->failed;
        t->failed = SPECDEC_OK;
        if (!result && !work)
            return SPECDEC_PENDING;
        if (!result)
            result = specdec__engine_step(t->engine, t);
        if (result)
            return specdec__engine_uncancel(t, result);
    }
}

specdec_result specdec_work(specdec *t)
{
    if (!t)
        return SPECDEC_ERROR_ARGUMENT;
    if (t->engine->room.views > 1)
        return specdec__engine_step(t->engine, NULL);
    if (!specdec__engine_wants(t)) /* the only text */
        return SPECDEC_DONE;
    t->failed = specdec__engine_step(t->engine, t);
    return SPECDEC_OK;
}

specdec_result specdec_step(specdec *t, const int32_t **tokens, int *count)
{
    specdec_result result = specdec__check_call(t, tokens && count);
    int from;

    if (result)
        return result;
    result = specdec__next_token(t, 1);
    from = t->handed_out;
    *tokens = t->tokens + from;
    *count = 0;
    if (result)
        return result;
    while (t->handed_out < t->count && !specdec__stream_ended(t, t->handed_out))
        t->handed_out++;
    *count = t->handed_out - from;
    return SPECDEC_OK;
}

/* The next piece that is not empty, into t->piece. */
static specdec_result specdec__next_piece(specdec *t, int work, size_t *written)
{
    specdec_result result;
    size_t more;

    do {
        int was_finished = t->finished;
        unsigned char rest[3];

        result = specdec__next_token(t, work);
        if (result == SPECDEC_DONE && !was_finished && !t->stop.stopped) { /* what was held back */
            more = specdec__text_stream_end(&t->stream, rest);
            specdec__stop_push(&t->stop, rest, more, t->piece, 2 * t->text_room, written, &t->error);
            if (!t->stop.stopped)
                *written += specdec__stop_end(&t->stop, t->piece + *written);
        }
        if (result)
            return result;
        result = specdec__text_stream_push(&t->stream, &t->model->vocab, t->tokens[t->handed_out], t->token_text,
                                           t->text_room, &more, &t->error);
        if (result)
            return result;
        t->handed_out++;
        result = specdec__stop_push(&t->stop, t->token_text, more, t->piece, 2 * t->text_room + SPECDEC__STOP_MAX_BYTES,
                                    written, &t->error);
    } while (!result && !*written);
    return result;
}

static specdec_result specdec__hand_out(specdec *t, int work, specdec_text *piece)
{
    specdec_result result = specdec__check_call(t, piece != NULL);
    specdec__text_stream stream;
    specdec__stop_scan stop;
    int handed_out;

    if (result)
        return result;
    piece->bytes = (const char *)t->piece;
    piece->length = t->freed;
    t->freed = 0;
    if (piece->length)
        return SPECDEC_OK;
    stream = t->stream;
    stop = t->stop;
    handed_out = t->handed_out;
    result = specdec__next_piece(t, work, &piece->length);
    if (result != SPECDEC_OK && result != SPECDEC_DONE && result != SPECDEC_PENDING) {
        t->stream = stream; /* tokens whose text was held back are in stock again */
        t->stop = stop;
        t->handed_out = handed_out;
        piece->length = 0;
    }
    return result;
}

specdec_result specdec_next(specdec *t, specdec_text *piece) { return specdec__hand_out(t, 1, piece); }

specdec_result specdec_take(specdec *t, specdec_text *piece) { return specdec__hand_out(t, 0, piece); }

specdec_stop specdec_stopped(const specdec *t, int *which)
{
    specdec_stop stop = SPECDEC_STOP_NONE;

    if (t && t->finished)
        stop = specdec__stream_ended(t, t->handed_out);
    else if (t && t->cancelled)
        stop = SPECDEC_STOP_CANCELLED;
    if (which)
        *which = stop == SPECDEC_STOP_STRING ? t->stop.stopped - 1
                 : stop == SPECDEC_STOP_END  ? t->tokens[t->handed_out - 1]
                                             : -1;
    return stop;
}

void specdec_tokens(const specdec *t, const int32_t **tokens, int *count)
{
    if (tokens)
        *tokens = t ? t->tokens : NULL;
    if (count)
        *count = t ? t->handed_out : 0;
}

specdec_result specdec_rewind(specdec *t, int count)
{
    specdec_result result = specdec__check_call(t, 1);

    if (result)
        return result;
    if (count < 0 || count > t->handed_out)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "cannot keep %d of %d tokens", count, t->handed_out);
    if (count < t->handed_out) { /* else the stock stays */
        specdec__engine_disown(t, count);
        specdec__engine_forget(t, count);
        t->count = t->handed_out = count;
        t->from_row = 0;
    }
    t->cancelled = 0;
    t->failed = SPECDEC_OK;
    specdec__stream_answer(t);
    return SPECDEC_OK;
}

void specdec_cancel(specdec *t)
{
    if (t)
        SPECDEC__STORE(&t->cancel, 1);
}

void specdec_get_stats(const specdec *t, specdec_stats *stats)
{
    specdec_tree_count *trees, moving;
    int i, j;

    if (!t || !stats)
        return;
    *stats = t->stats;
    trees = stats->trees;
    for (i = 1; i < SPECDEC_STATS_TREES; i++) {
        moving = trees[i];
        for (j = i; j > 0 && trees[j - 1].steps < moving.steps; j--)
            trees[j] = trees[j - 1];
        trees[j] = moving;
    }
}

void specdec_get_info(const specdec *t, specdec_info *info)
{
    const specdec__model *m;
    const specdec__pages *pages;
    int i;

    if (!t || !info)
        return;
    m = t->model;
    memset(info, 0, sizeof *info);
    info->isa = t->engine->kernels->name;
    info->kv = t->engine->config.kv;
    info->chat_format = t->engine->chat ? t->engine->chat->name : NULL;
    info->threads = t->engine->pool.threads;
    info->context = t->context;
    info->vocabulary = m->vocab_size;
    info->layers = m->layers;
    info->embedding = m->embedding;
    info->texts = t->engine->room.views;
    for (i = 0; i < info->texts; i++)
        info->open_texts += t->engine->texts[i].open;
    pages = &t->engine->target.kv.span[m->span_layers[SPECDEC__WHOLE] ? SPECDEC__WHOLE : SPECDEC__WINDOW];
    info->fork_token = t->engine->fork_token;
    info->child_token = t->engine->child_token;
    info->cache = pages->count * SPECDEC__KEYS;
    info->cache_free = pages->free_count * SPECDEC__KEYS;
    info->memory_bytes = t->engine->memory_bytes;
    info->weight_bytes = m->weight_bytes;
    info->kv_bytes = specdec__kv_bytes(&t->engine->target.kv);
    for (i = 0; i < t->engine->drafter_count; i++)
        info->kv_bytes += t->engine->drafters[i].kv_bytes;
    info->products_per_token = m->weight_products;
}

const specdec_model *specdec_get_model(const specdec *t) { return t ? t->model : NULL; }

specdec_result specdec_get_logprob(specdec *t, int at, specdec_logprob *logprob)
{
    specdec_result result = specdec__check_call(t, logprob != NULL);

    if (result)
        return result;
    if (!t->logprobs || at < 0 || at >= t->handed_out || t->logprobs[at] > 0)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "token %d of %d: %s", at, t->handed_out,
                             t->logprobs ? "it was not written" : "config.logprobs is 0");
    logprob->token = t->tokens[at];
    logprob->logprob = t->logprobs[at];
    logprob->best = t->best + (size_t)at * (size_t)t->best_count;
    logprob->count = specdec__min_int(t->best_count, t->model->vocab_size);
    return SPECDEC_OK;
}

/* May these nodes hang below the text? */
static specdec_result specdec__nodes_check(specdec *t, const int32_t *tokens, const int32_t *parents, int count)
{
    const int vocab = t->model->vocab_size;
    int i;

    if (count < 0 || count > t->engine->target.most - 1 || (!count && !t->handed_out))
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "%d nodes (%d to %d are possible)", count,
                             !t->handed_out, t->engine->target.most - 1);
    for (i = 0; i < count; i++)
        if (parents[i] < -1 || parents[i] >= i)
            return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "node %d has the parent %d", i, (int)parents[i]);
        else if (tokens[i] < 0 || tokens[i] >= vocab)
            return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "token id %d, the vocabulary has %d",
                                 (int)tokens[i], vocab);
    return SPECDEC_OK;
}

specdec_result specdec_logits(specdec *t, const int32_t *tokens, const int32_t *parents, int count, float *logits)
{
    specdec_result result = specdec__check_call(t, count <= 0 || (tokens && parents));
    specdec__context *c;
    specdec__rows none;
    specdec__batch batch;
    size_t row;
    int i, root;

    if (result || (result = specdec__nodes_check(t, tokens, parents, count)) != SPECDEC_OK)
        return result;
    c = &t->engine->target;
    root = t->handed_out > 0;
    none = specdec__forward_wanted(t->handed_out);
    specdec__engine_reroot(t, t->handed_out);
    if (t->view.length < t->handed_out - 1)
        result = specdec__engine_uncancel(t, specdec__engine_prefill(t, t->handed_out - 1, &none));
    if (result)
        return result;
    if (root) {
        c->tokens[0] = t->tokens[t->handed_out - 1];
        c->parents[0] = -1;
    }
    for (i = 0; i < count; i++) {
        c->tokens[root + i] = tokens[i];
        c->parents[root + i] = parents[i] < 0 ? root - 1 : parents[i] + root;
    }
    batch = specdec__forward_alone(c, &t->view, 0, count + root);
    t->engine->pool.cancel = &t->cancel;
    t->engine->row_of = NULL;
    result = specdec__engine_uncancel(t, specdec__forward(c, &batch, &t->error));
    specdec__view_unreserve(&t->view, &c->kv);
    if (result || !logits)
        return result;
    row = (size_t)t->model->vocab_size;
    if (!root)
        memset(logits, 0, row * sizeof *logits);
    memcpy(logits + (root ? 0 : row), c->logits, (size_t)(count + root) * row * sizeof *logits);
    return SPECDEC_OK;
}

/* --- a prepared model --------------------------------------------------------------------------------------------- */

static specdec_result specdec__model_layout(const specdec_config *config, specdec_model *m, specdec__pool *pool,
                                            specdec__arena *arena, specdec_error *error)
{
    int threads = config->threads ? config->threads : specdec__os_processors(), cancel = 0;
    specdec__kernels unused;
    specdec_result result;

    memset(pool, 0, sizeof *pool);
    memset(m, 0, sizeof *m);
    if ((result = specdec__engine_check_threads(config, error)) != SPECDEC_OK ||
        (result = specdec__kernels_init(&unused, config->isa, error)) != SPECDEC_OK)
        return result;
    result = specdec__model_init(m, &config->target, config->vocabulary_only, arena, error);
    if (result || config->vocabulary_only)
        return result;
    result = specdec__pool_init(pool, specdec__min_int(threads, SPECDEC_MAX_THREADS), &cancel, arena, error);
    if (!result && !config->weights_in_place)
        result = specdec__model_repack(m, arena, pool, &config->hooks, error);
    specdec__pool_deinit(pool);
    return result;
}

specdec_result specdec_model_memory_needed(const specdec_config *config, size_t *bytes, specdec_error *error)
{
    specdec__arena arena = {NULL, 0, 0};
    specdec__pool pool;
    specdec_model model;
    specdec_result result;

    if (!config || !bytes)
        return specdec__is_missing(error);
    memset(&model, 0, sizeof model);
    SPECDEC__TAKE(&arena, specdec_model, 1);
    result = specdec__model_layout(config, &model, &pool, &arena, error);
    if (!result)
        result = specdec__counted_bytes(&arena, bytes, error);
    specdec__model_deinit(&model);
    return result;
}

specdec_result specdec_model_init(specdec_model **model, const specdec_config *config, void *memory, size_t bytes,
                                  specdec_error *error)
{
    specdec__arena arena;
    specdec__pool pool;
    size_t needed;
    specdec_model *m;
    specdec_result result;

    if (!model)
        return specdec__is_missing(error);
    *model = NULL;
    result = specdec_model_memory_needed(config, &needed, error);
    if (result)
        return result;
    if (!memory || bytes < needed)
        return specdec__too_small(memory ? bytes : 0, needed, error);
    arena = specdec__block_arena(memory, needed);
    m = SPECDEC__TAKE(&arena, specdec_model, 1);
    result = specdec__model_layout(config, m, &pool, &arena, error);
    if (!result && arena.used == SIZE_MAX)
        result = specdec__too_small(bytes, needed, error);
    if (result) {
        specdec__model_deinit(m);
        return result;
    }
    *model = m;
    return SPECDEC_OK;
}

void specdec_model_deinit(specdec_model *model)
{
    if (model)
        specdec__model_deinit(model);
}

size_t specdec_tokenize_memory(const specdec_model *model, size_t length)
{
    return model ? specdec__tokenize_scratch(&model->vocab, length) : 0;
}

specdec_result specdec_tokenize(const specdec_model *model, const char *text, size_t length, int flags, int32_t *tokens,
                                int capacity, int *count, void *memory, size_t bytes, specdec_error *error)
{
    size_t all = 0;
    specdec_result result;

    if (!model || (!text && length) || !count || (capacity > 0 && !tokens))
        return specdec__is_missing(error);
    length = length == SPECDEC_WHOLE_STRING ? strlen(text) : length;
    if (length > SPECDEC__TEXT_MAX_BYTES / 4) /* so that tokens can be counted by an int */
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a text of %zu bytes is too long", length);
    result = specdec__tokenize(&model->vocab, text, length, flags, tokens, (size_t)specdec__max_int(capacity, 0), &all,
                               memory, bytes, error);
    *count = (int)all;
    return result;
}

specdec_result specdec_token_text(const specdec_model *model, int32_t token, char *bytes, size_t size, size_t *length,
                                  specdec_error *error)
{
    if (!model || !length || (size && !bytes))
        return specdec__is_missing(error);
    return specdec__token_bytes(&model->vocab, token, 1, (unsigned char *)bytes, size, length, error);
}

/* Room that specdec_detokenize asks for: all tokens, and what the last of them may leave unfinished. */
static specdec_result specdec__detokenize_room(const specdec_model *model, const int32_t *tokens, int count,
                                               int special, size_t *room, specdec_error *error)
{
    size_t more;
    int i;

    for (*room = 3, i = 0; i < count; i++) {
        specdec_result result = specdec__token_bytes(&model->vocab, tokens[i], special, NULL, 0, &more, error);

        if (result && result != SPECDEC_ERROR_BUFFER)
            return result;
        *room = specdec__size_add(*room, more);
    }
    return SPECDEC_OK;
}

specdec_result specdec_detokenize(const specdec_model *model, const int32_t *tokens, int count, int flags, char *bytes,
                                  size_t size, size_t *length, specdec_error *error)
{
    const int special = (flags & SPECDEC_TOKENIZE_SPECIAL) != 0;
    unsigned char *out = (unsigned char *)bytes;
    specdec__text_stream stream;
    specdec_result result;
    size_t room, more, at = 0;
    int i;

    if (!model || !length || (count > 0 && !tokens) || (size && !bytes))
        return specdec__is_missing(error);
    result = specdec__detokenize_room(model, tokens, count, special, &room, error);
    *length = result ? 0 : room;
    if (result)
        return result;
    if (room > size)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "%zu bytes are needed, there is room for %zu", room, size);
    specdec__text_stream_begin(&stream, &model->vocab, -1, special);
    for (i = 0; i < count; i++) {
        result = specdec__text_stream_push(&stream, &model->vocab, tokens[i], out + at, size - at, &more, error);
        if (result)
            return result;
        at += more;
    }
    *length = at + specdec__text_stream_end(&stream, out + at);
    return SPECDEC_OK;
}

/* --- a tree of the caller's --------------------------------------------------------------------------------------- */

specdec_result specdec_set_tree(specdec *t, const specdec_tree *tree)
{
    specdec_result result = specdec__check_call(t, tree != NULL);
    specdec__engine *e;

    if (result)
        return result;
    e = t->engine;
    if (e->config.drafting != SPECDEC_DRAFT_MODEL || !e->drafter_count || e->drafters[0].proposals[0].grows)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "a tree is set for static SPECDEC_DRAFT_MODEL only");
    result = specdec_tree_check(tree, &t->error);
    if (result)
        return result;
    if (tree->n > e->config.tree_size || specdec_tree_depth(tree, NULL) > e->config.tree_depth)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT,
                             "a tree of %d nodes and %d levels; the engine takes %d and %d", tree->n,
                             specdec_tree_depth(tree, NULL), e->config.tree_size, e->config.tree_depth);
    memcpy(e->shape.parents, tree->parents, (size_t)tree->n * sizeof *tree->parents);
    memcpy(e->shape.ranks, tree->ranks, (size_t)tree->n * sizeof *tree->ranks);
    e->shape.n = tree->n;
    return SPECDEC_OK;
}

/* --- files and types ---------------------------------------------------------------------------------------------- */

specdec_result specdec_gguf_open(specdec_gguf *gguf, const void *data, size_t size, specdec_error *error)
{
    specdec__bytes file;
    specdec_result result;

    if (!gguf || !data)
        return specdec__is_missing(error);
    file.data = (const unsigned char *)data;
    file.size = size;
    result = specdec__gguf_open(gguf, file, error);
    if (result)
        memset(gguf, 0, sizeof *gguf); /* nothing of it was checked */
    return result;
}

int specdec_gguf_find(const specdec_gguf *gguf, const char *key, specdec_gguf_value *value)
{
    return gguf && key && value && specdec__gguf_find(gguf, key, value);
}

int specdec_gguf_find_tensor(const specdec_gguf *gguf, const char *name, specdec_gguf_tensor *tensor)
{
    return gguf && name && tensor ? specdec__gguf_find_tensor(gguf, name, tensor) : 0;
}

/* A cursor at a caller's place in a file, between from and to: 0 stands for from. */
static specdec__cursor specdec__gguf_place(const specdec_gguf *gguf, size_t place, size_t from, size_t to)
{
    specdec__cursor c = specdec__cursor_over(gguf->file.data, to);

    c.at = place < from ? from : place;
    c.bad = c.at >= to;
    return c;
}

int specdec_gguf_next_pair(const specdec_gguf *gguf, size_t *place, specdec_gguf_pair *pair)
{
    specdec__cursor c;
    size_t from;

    if (!gguf || !place || !pair)
        return 0;
    c = specdec__gguf_place(gguf, *place, gguf->pairs_at, gguf->tensors_at);
    if (c.bad) /* none left */
        return 0;
    from = c.at;
    pair->key = specdec__cursor_string(&c);
    pair->value = specdec__cursor_value(&c);
    if (c.bad)
        return 0;
    pair->record.data = gguf->file.data + from;
    pair->record.size = c.at - from;
    *place = c.at;
    return 1;
}

int specdec_gguf_next_tensor(const specdec_gguf *gguf, size_t *place, specdec_gguf_tensor *tensor)
{
    specdec__cursor c;

    if (!gguf || !place || !tensor)
        return 0;
    c = specdec__gguf_place(gguf, *place, gguf->tensors_at, gguf->tensors_end);
    if (c.bad || specdec__gguf_read_tensor(gguf, &c, tensor))
        return 0;
    *place = c.at;
    return 1;
}

int specdec_gguf_next_string(const specdec_gguf_value *array, size_t *place, specdec_bytes *string)
{
    specdec__cursor c;

    if (!array || !place || !string || !array->is_array || array->type != SPECDEC_GGUF_STRING || *place >= array->bytes)
        return 0;
    c.data = array->items;
    c.size = array->bytes;
    c.at = *place;
    c.bad = 0;
    *string = specdec__cursor_string(&c);
    *place = c.bad ? *place : c.at;
    return !c.bad;
}

/* Where item i of a value lies; NULL when there is none, or when items are of no fixed size. */
static const unsigned char *specdec__gguf_item(const specdec_gguf_value *value, uint64_t i)
{
    size_t size = value && value->type < SPECDEC_GGUF_TYPES ? specdec__gguf_type_size[value->type] : 0;

    return size && i < value->bytes / size ? value->items + (size_t)i * size : NULL;
}

int specdec_gguf_integer(const specdec_gguf_value *value, uint64_t i, int64_t *out)
{
    const unsigned char *at = specdec__gguf_item(value, i);

    return at && out && specdec__gguf_integer(value->type, at, out);
}

int specdec_gguf_real(const specdec_gguf_value *value, uint64_t i, double *out)
{
    const unsigned char *at = specdec__gguf_item(value, i);
    uint64_t bits;
    int64_t integer;

    if (!at || !out)
        return 0;
    if (value->type == SPECDEC_GGUF_F32) {
        *out = (double)specdec__load_f32(at);
    } else if (value->type == SPECDEC_GGUF_F64) {
        bits = specdec__load_u64(at);
        memcpy(out, &bits, sizeof bits);
    } else if (specdec__gguf_integer(value->type, at, &integer)) {
        *out = value->type == SPECDEC_GGUF_U64 ? (double)specdec__load_u64(at) : (double)integer;
    } else {
        return 0;
    }
    return 1;
}

specdec_result specdec_gguf_get_integer(const specdec_gguf *gguf, const char *key, int64_t low, int64_t high,
                                        int64_t *out, specdec_error *error)
{
    if (!gguf || !key || !out)
        return specdec__is_missing(error);
    return specdec__gguf_get_integer(gguf, key, low, high, out, error);
}

specdec_result specdec_gguf_get_float(const specdec_gguf *gguf, const char *key, float *out, specdec_error *error)
{
    if (!gguf || !key || !out)
        return specdec__is_missing(error);
    return specdec__gguf_get_float(gguf, key, out, error);
}

specdec_result specdec_gguf_get_string(const specdec_gguf *gguf, const char *key, specdec_bytes *out,
                                       specdec_error *error)
{
    specdec__bytes found;
    specdec_result result;

    if (!gguf || !key || !out)
        return specdec__is_missing(error);
    result = specdec__gguf_get_string(gguf, key, &found, error);
    *out = result || !found.data ? *out : found;
    return result;
}

/* What is public of a type; 0 and nothing when it is not known. */
static int specdec__type_show(const specdec__quant_type *known, specdec_type *type)
{
    if (!known || !type)
        return 0;
    type->number = known->number;
    type->name = known->name;
    type->block = known->block;
    type->bytes = known->bytes;
    type->writable = !known->granule || specdec__quant_encoder_of(known);
    return 1;
}

int specdec_type_by_number(uint32_t number, specdec_type *type)
{
    return specdec__type_show(specdec__quant_find(number), type);
}

int specdec_type_by_name(const char *name, specdec_type *type)
{
    uint32_t number = 0;
    const specdec__quant_type *known = NULL;

    for (; name && number < SPECDEC__TYPE_COUNT; number++) {
        known = specdec__quant_find(number);
        if (known && strcmp(known->name, name) == 0)
            break;
    }
    return number < SPECDEC__TYPE_COUNT && specdec__type_show(known, type);
}

SPECDEC__STATIC_ASSERT(type_numbers_are_public, SPECDEC_TYPE_NUMBERS == SPECDEC__TYPE_COUNT);

/* The type of a number that whole blocks of values are asked of; NULL, and an error, when there is none such. */
static const specdec__quant_type *specdec__type_of(uint32_t number, uint64_t values, size_t *bytes,
                                                   specdec_error *error)
{
    const specdec__quant_type *type = specdec__quant_find(number);

    *bytes = specdec__quant_bytes(number, values, values);
    if (type && *bytes != SIZE_MAX)
        return type;
    if (!type)
        specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "type %u is not known", (unsigned)number);
    else
        specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%llu values of %s, which come in blocks of %d, %s",
                      (unsigned long long)values, type->name, type->block,
                      values % type->block ? "are no whole blocks" : "are too many");
    return NULL;
}

specdec_result specdec_type_bytes(uint32_t number, uint64_t values, size_t *bytes, specdec_error *error)
{
    size_t size;

    if (!bytes)
        return specdec__is_missing(error);
    if (!specdec__type_of(number, values, &size, error))
        return SPECDEC_ERROR_ARGUMENT;
    *bytes = size;
    return SPECDEC_OK;
}

specdec_result specdec_type_to_float(uint32_t number, const void *data, size_t values, float *out, specdec_error *error)
{
    size_t size;
    const specdec__quant_type *type = specdec__type_of(number, values, &size, error);

    if (!type || (values && (!data || !out)))
        return type ? specdec__is_missing(error) : SPECDEC_ERROR_ARGUMENT;
    specdec__quant_to_float(type, data, values, out);
    return SPECDEC_OK;
}

specdec_result specdec_type_from_float(uint32_t number, const float *values, size_t count, void *out,
                                       specdec_error *error)
{
    size_t size;
    const specdec__quant_type *type = specdec__type_of(number, count, &size, error);
    specdec_type about;

    if (!specdec__type_show(type, &about) || (count && (!values || !out)))
        return type ? specdec__is_missing(error) : SPECDEC_ERROR_ARGUMENT;
    if (!about.writable)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%s is only read", about.name);
    specdec__quant_from_float(type, values, count, out);
    return SPECDEC_OK;
}

const char *specdec_isa_name(int index)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__isas); i++)
        if (specdec__isas[i].fill && specdec__isas[i].present() && index-- == 0)
            return specdec__isas[i].name;
    return NULL;
}

int specdec_processors(void) { return specdec__os_processors(); }

specdec_result specdec_get_model_info(const specdec_model *model, specdec_model_info *info)
{
    const specdec_model *m = model;
    const specdec__chat_format *chat;

    if (!m || !info)
        return SPECDEC_ERROR_ARGUMENT;
    memset(info, 0, sizeof *info);
    chat =
        m->chat_template.data ? specdec__chat_find((const char *)m->chat_template.data, m->chat_template.size) : NULL;
    info->architecture = m->architecture ? m->architecture->name : m->speculator ? m->speculator->name : NULL;
    info->chat_format = chat ? chat->name : NULL;
    info->has_template = m->chat_template.data != NULL;
    info->tokenizer = m->vocab.model == SPECDEC__VOCAB_SPM ? "SPM" : "byte-level BPE";
    info->words = m->vocab.words ? m->vocab.words->name : NULL;
    info->context = m->context;
    info->vocabulary = m->vocab_size ? m->vocab_size : (int)m->vocab.count; /* the latter without weights */
    info->layers = m->layers;
    info->embedding = m->embedding;
    info->feed_forward = m->feed_forward;
    info->heads = m->heads;
    info->kv_heads = m->kv_heads;
    info->head_size = m->head_dim;
    info->window = m->window;
    info->window_layers = m->span_layers[SPECDEC__WINDOW];
    info->weight_bytes = m->weight_bytes;
    info->products_per_token = m->weight_products;
    info->gguf = &m->gguf;
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED

#ifdef __cplusplus
}
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#if __clang_major__ >= 12 && defined(__x86_64__)
#pragma float_control(pop)
#endif
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#pragma GCC diagnostic pop
#endif /* SPECDEC_IMPLEMENTED */
#endif /* SPECDEC_IMPLEMENTATION */

#else /* SPECDEC__ISA: this file is including itself */

/* =====================================================================================================================
 * >>lanes (private): float loops over 16 lanes, written once, a part of >>kernel. specdec.h includes itself here once
 *     per instruction set (SPECDEC__ISA). V and X are its vector type of SPECDEC__LANES floats and its operations.
 *     May call: >>base >>quant >>op >>kernel
 *
 * Lanes are separate rows, keys or dimensions. Where they are parts of one sum (norm, softmax), 16 strided partials
 * meet in one fixed tree. So every instruction set gives the same bits.
 * ================================================================================================================== */

#pragma push_macro("V")
#pragma push_macro("X")
#undef V
#undef X
#define V SPECDEC__PASTE(SPECDEC__ISA, v)
#define X(name) SPECDEC__PASTE(SPECDEC__ISA, name)
/* Checks that all SPECDEC__LANE_OPERATIONS are there, with their types. Nothing is called. */
#define SPECDEC__LANE_OPERATION(name, result, parameters) + sizeof(0 ? X(name) : (result (*) parameters)0)
enum { X(operations) = 0 SPECDEC__LANE_OPERATIONS(SPECDEC__LANE_OPERATION, V) };
#undef SPECDEC__LANE_OPERATION

#define SPECDEC__LANE SPECDEC__TARGET static
#define SPECDEC__LANE_INLINE SPECDEC__TARGET SPECDEC__INLINE
#define SPECDEC__PARTS (16 / SPECDEC__LANES) /* vectors of 16 lanes */
#define SPECDEC__ROWS_AT_ONCE (SPECDEC__PARTS < SPECDEC__WIDTH ? SPECDEC__PARTS : SPECDEC__WIDTH)
#if SPECDEC__LANES < 16 /* without fused multiply-adds: long functions are called, and nothing is done four at a time */
#define SPECDEC__LANE_LONG SPECDEC__TARGET static __attribute__((noinline))
#define SPECDEC__TOGETHER 1
#define SPECDEC__EACH_PART
#else
#define SPECDEC__LANE_LONG SPECDEC__LANE_INLINE
#define SPECDEC__TOGETHER 4
#define SPECDEC__EACH_PART SPECDEC__UNROLL
#endif

/* specdec__exp for x <= 88; below -87 the result stays at e^-87. */
SPECDEC__LANE_LONG V X(exp)(V x)
{
    V shifter, n, r, p;

    x = X(min)(X(max)(x, X(set)(-87.0f)), X(set)(88.0f));
    SPECDEC__EXP(x, shifter, n, r, p, X(madd), X(set), X(sub));
    return X(scale2)(p, shifter);
}

/* Values [from, to) of x times weight, divided by the root of the mean square of x (length). */
SPECDEC__LANE void X(norm)(const float *x, const float *weight, float epsilon, int length, int from, int to, float *out)
{
    V sums[SPECDEC__PARTS], scale;
    int i, p;

    for (p = 0; p < SPECDEC__PARTS; p++) {
        sums[p] = X(set)(0);
        for (i = p * SPECDEC__LANES; i < length; i += 16)
            sums[p] = X(madd)(X(load)(x + i), X(load)(x + i), sums[p]);
    }
    scale = X(set)((float)specdec__inverse_root((double)X(sum)(sums) / (double)length + (double)epsilon));
    for (i = from; i < to; i += SPECDEC__LANES)
        X(store)(out + i, X(mul)(X(mul)(X(load)(x + i), scale), X(load)(weight + i)));
}

/* From how far the values of 16 blocks reach above and below 0: the places of their windows, their scales, and the
   inverses of the scales, 0 where a scale is too small to divide by. */
SPECDEC__VECTORISE SPECDEC__LANE void X(windows)(const float *high, const float *low, int32_t *offset, float *scale,
                                                 float *inverse)
{
    int i;

    for (i = 0; i < 16; i++) {
        float share = low[i] / (high[i] + low[i]), above, below;
        int32_t level;

        share = share > 0 ? share * 16 : 0; /* all zeros give NaN */
        level = (int32_t)(share < 15 ? share : 15);
        offset[i] = 120 - 16 * level;
        above = high[i] * (1.0f / (float)(247 - 16 * level)); /* over the codes that a window has above 0, */
        below = low[i] * (1.0f / (float)(7 + 16 * level));    /* and below */
        scale[i] = above > below ? above : below;
        inverse[i] = 1.0f / scale[i];
        inverse[i] = inverse[i] < 1e38f ? inverse[i] : 0;
    }
}

/* 32 values: x = scale * (code + offset), code in [-127, 127]. The window of 255 codes lies around 0 as the values do,
   in one of 16 places: offset = 120 - 16 * level. Block b goes to column c of columns. */
SPECDEC__LANE_INLINE void X(quantise_block)(const float *row, int32_t offset, float scale, float inverse, size_t at,
                                            const specdec__columns *out)
{
    const V magic = X(set)(12582912.0f), inverses = X(set)(inverse), base = X(set)(12582912.0f + (float)offset);
    int8_t *codes = out->codes + at * 32;
    int32_t half0, half1;
    int i;

    /* The low byte of (x/scale rounded, plus magic) - (magic + offset), brought back to magic: an exact integer sum. */
    SPECDEC__EACH_PART
    for (i = 0; i < 32; i += SPECDEC__LANES)
        X(store_low_bytes)(codes + i, X(add)(X(sub)(X(madd)(X(load)(row + i), inverses, magic), base), magic));
    half0 = X(sum_codes)(codes);
    half1 = X(sum_codes)(codes + 16);
    out->scale[at] = scale;
    out->pair16[at * 2] = (int32_t)((uint32_t)half0 << 16 | (uint16_t)offset);
    out->pair16[at * 2 + 1] = (int32_t)((uint32_t)half1 << 16 | (uint16_t)offset);
    out->pair32[at] = (int32_t)((uint32_t)(half0 + half1) << 16 | (uint16_t)offset);
    out->sum16[at * 2] = scale * (float)(half0 + 16 * offset);
    out->sum16[at * 2 + 1] = scale * (float)(half1 + 16 * offset);
    out->sum32[at] = scale * (float)(half0 + half1 + 32 * offset);
}

/* How far 32 values reach above and below 0. */
SPECDEC__LANE_INLINE void X(extent)(const float *values, float *high, float *low)
{
    const V zero = X(set)(0);
    V highs[SPECDEC__PARTS], lows[SPECDEC__PARTS];
    int p;

    for (p = 0; p < SPECDEC__PARTS; p++) {
        V x0 = X(load)(values + p * SPECDEC__LANES), x1 = X(load)(values + 16 + p * SPECDEC__LANES);

        highs[p] = X(max)(X(max)(x0, x1), zero);
        lows[p] = X(max)(X(max)(X(sub)(zero, x0), X(sub)(zero, x1)), zero);
    }
    *high = X(highest)(highs);
    *low = X(highest)(lows);
}

/* Blocks [from, to) of 32 values of a row, quantised, to column c. */
SPECDEC__LANE void X(quantise)(const float *row, int from, int to, int c, const specdec__columns *out)
{
    float high[16] = {0}, low[16] = {0}, scale[16], inverse[16];
    int32_t offset[16];
    int i, count;

    for (; from < to; from += count) {
        count = specdec__min_int(16, to - from);
        for (i = 0; i < count; i++)
            X(extent)(row + (from + i) * 32, &high[i], &low[i]);
        X(windows)(high, low, offset, scale, inverse);
        for (i = 0; i < count; i++)
            X(quantise_block)(row + (from + i) * 32, offset[i], scale[i], inverse[i],
                              (size_t)(from + i) * (size_t)out->n + (size_t)c, out);
    }
}

/* x / (1 + e^y) */
SPECDEC__LANE_INLINE V X(gated)(V x, V y) { return X(div)(x, X(add)(X(set)(1), X(exp)(y))); }

/* x = x / (1 + e^-x) * by, elementwise. */
SPECDEC__LANE void X(silu)(float *x, const float *by, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES) {
        V v = X(load)(x + i);

        X(store)(x + i, X(mul)(X(gated)(v, X(sub)(X(set)(0), v)), X(load)(by + i)));
    }
}

/* GELU in its tanh form, x/2 (1 + tanh(sqrt(2/pi) (x + .044715 x^3))), as x / (1 + e^(-2 ...)). */
SPECDEC__LANE void X(gelu)(float *x, const float *by, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES) {
        V v = X(load)(x + i), cubic = X(madd)(X(mul)(v, v), X(set)(-0.0713548163f), X(set)(-1.59576912f));

        X(store)(x + i, X(mul)(X(gated)(v, X(mul)(v, cubic)), X(load)(by + i)));
    }
}

/* GELU as it is defined, x/2 (1 + erf(x / sqrt 2)), as max(x, 0) - |x|/2 erfc(|x| / sqrt 2), to 2e-7. Abramowitz and
   Stegun (1964), 7.1.26. */
SPECDEC__LANE void X(gelu_exact)(float *x, const float *by, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES) {
        V v = X(load)(x + i), size = X(max)(v, X(sub)(X(set)(0), v));
        V t = X(div)(X(set)(1), X(madd)(size, X(set)(0.231641889f), X(set)(1)));
        V p = X(madd)(t, X(set)(1.06140542f), X(set)(-1.45315206f));

        p = X(madd)(t, p, X(set)(1.42141378f));
        p = X(madd)(t, p, X(set)(-0.284496725f));
        p = X(mul)(X(madd)(t, p, X(set)(0.254829586f)), t);
        p = X(mul)(p, X(exp)(X(mul)(X(mul)(v, v), X(set)(-0.5f))));
        p = X(sub)(X(max)(v, X(set)(0)), X(mul)(X(mul)(size, X(set)(0.5f)), p));
        X(store)(x + i, X(mul)(p, X(load)(by + i)));
    }
}

/* x = x * cosine + partner * sine, elementwise. */
SPECDEC__LANE void X(rotate)(float *x, const float *partner, const float *cosine, const float *sine, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store)(x + i, X(madd)(X(load)(x + i), X(load)(cosine + i), X(mul)(X(load)(partner + i), X(load)(sine + i))));
}

/* Floats of a tile to a panel. */
SPECDEC__LANE void X(unpack_f32)(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                 specdec__panel *panel)
{
    int i;

    (void)type;
    for (i = 0; i < blocks * 32 * SPECDEC__ROWS; i++)
        panel->u.values[i] = specdec__load_f32(tile + i * 4);
}

/* Half floats of a tile to a panel. */
SPECDEC__LANE void X(unpack_f16)(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                 specdec__panel *panel)
{
    int i;

    (void)type;
    for (i = 0; i < blocks * 32 * SPECDEC__ROWS; i += SPECDEC__LANES)
        X(store)(panel->u.values + i, X(load_f16)(tile + i * 2));
}

/* bfloat16 of a tile to a panel. */
SPECDEC__LANE void X(unpack_bf16)(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                  specdec__panel *panel)
{
    int i;

    (void)type;
    for (i = 0; i < blocks * 32 * SPECDEC__ROWS; i += SPECDEC__LANES)
        X(store)(panel->u.values + i, X(load_bf16)(tile + i * 2));
}

/* acc (count, chunks) += weight * row: a row of chunks vectors times the weights[c * stride] of count sums. */
SPECDEC__LANE_INLINE void X(add_row)(V (*acc)[SPECDEC__WIDTH], const float *weights, int stride, const float *row,
                                     int count, int chunks)
{
    V v[SPECDEC__WIDTH];
    int c, i;

    SPECDEC__UNROLL
    for (i = 0; i < chunks; i++)
        v[i] = X(load)(row + i * SPECDEC__LANES);
    SPECDEC__UNROLL
    for (c = 0; c < count; c++) {
        V w = X(set)(weights[c * stride]);

        SPECDEC__UNROLL
        for (i = 0; i < chunks; i++)
            acc[c][i] = X(madd)(w, v[i], acc[c][i]);
    }
}

/* sums (column, 16) += values (value, 16) * x (column, value), columns of them at once; of all 16,
   SPECDEC__ROWS_AT_ONCE vectors. */
SPECDEC__LANE_INLINE void X(dot_float_columns)(const float *values, int count, const float *x, int stride, float *sums,
                                               int columns)
{
    V acc[4][SPECDEC__WIDTH];
    int i, c, r;

    SPECDEC__UNROLL
    for (c = 0; c < columns; c++)
        SPECDEC__UNROLL
        for (r = 0; r < SPECDEC__ROWS_AT_ONCE; r++)
            acc[c][r] = X(load)(sums + c * 16 + r * SPECDEC__LANES);
    for (i = 0; i < count; i++)
        X(add_row)(acc, x + i, stride, values + i * 16, columns, SPECDEC__ROWS_AT_ONCE);
    SPECDEC__UNROLL
    for (c = 0; c < columns; c++)
        SPECDEC__UNROLL
        for (r = 0; r < SPECDEC__ROWS_AT_ONCE; r++)
            X(store)(sums + c * 16 + r * SPECDEC__LANES, acc[c][r]);
}

/* Adds a panel of floats times count columns to sums (column, 16). */
SPECDEC__LANE void X(dot_float)(const specdec__panel *panel, int blocks, const specdec__columns *x, int block,
                                int column, int count, float *sums)
{
    const float *values = x->values + (size_t)column * (size_t)x->stride + (size_t)block * 32;
    int p;

    for (; count >= SPECDEC__TOGETHER; count -= SPECDEC__TOGETHER, sums += SPECDEC__TOGETHER * 16) {
        for (p = 0; p < 16; p += SPECDEC__LANES * SPECDEC__ROWS_AT_ONCE)
            X(dot_float_columns)(panel->u.values + p, blocks * 32, values, x->stride, sums + p, SPECDEC__TOGETHER);
        values += SPECDEC__TOGETHER * (size_t)x->stride;
    }
#if SPECDEC__TOGETHER > 1
    for (; count; count--, values += x->stride, sums += 16)
        X(dot_float_columns)(panel->u.values, blocks * 32, values, x->stride, sums, 1);
#endif
}

/* scores (query, key) = sum over dimensions, in order, of query * key; lanes are keys, SPECDEC__WIDTH vectors a
   pass. */
SPECDEC__LANE_INLINE void X(scores_queries)(const float *queries, int dim, const float *keys, float *scores, int count)
{
    V acc[4][SPECDEC__WIDTH];
    int from, c, d, i;

    for (from = 0; from < SPECDEC__KEYS; from += SPECDEC__LANES * SPECDEC__WIDTH) {
        SPECDEC__UNROLL
        for (c = 0; c < count; c++)
            SPECDEC__UNROLL
            for (i = 0; i < SPECDEC__WIDTH; i++)
                acc[c][i] = X(set)(0);
        for (d = 0; d < dim; d++)
            X(add_row)(acc, queries + d, dim, keys + d * SPECDEC__KEYS + from, count, SPECDEC__WIDTH);
        SPECDEC__UNROLL
        for (c = 0; c < count; c++)
            SPECDEC__UNROLL
            for (i = 0; i < SPECDEC__WIDTH; i++)
                X(store)(scores + c * SPECDEC__KEYS + from + i * SPECDEC__LANES, acc[c][i]);
    }
}

/* queries (count <= 4, dim) . keys (dim, 64) -> scores (count, 64). */
SPECDEC__LANE void X(scores)(const float *queries, int dim, int count, const float *keys, float *scores)
{
    int i;

    switch (SPECDEC__TOGETHER > 1 ? count : 0) {
    case 4: X(scores_queries)(queries, dim, keys, scores, 4); break;
    case 3: X(scores_queries)(queries, dim, keys, scores, 3); break;
    case 2: X(scores_queries)(queries, dim, keys, scores, 2); break;
    default:
        for (i = 0; i < count; i++)
            X(scores_queries)(queries + i * dim, dim, keys, scores + i * SPECDEC__KEYS, 1);
        break;
    }
}

SPECDEC__LANE_INLINE void X(outside)(float *scores, int from, int to, float value)
{
    int i;

    for (i = 0; i < from; i++)
        scores[i] = value;
    for (i = to; i < SPECDEC__KEYS; i++)
        scores[i] = value;
}

/* scores (64), [from, to) of them -> exp(score - *max) in place, zeros beyond, once *max has grown to the largest of
   them. Adds them to sums (16). Returns what the growth has scaled sums by. */
SPECDEC__LANE float X(softmax)(float *scores, int from, int to, float *max, float *sums)
{
    V part[SPECDEC__PARTS], highest;
    float grown, factor = 1;
    int i, p;

    X(outside)(scores, from, to, -3.0e38f);
    for (p = 0; p < SPECDEC__PARTS; p++) {
        const float *at = scores + p * SPECDEC__LANES;

        part[p] = X(max)(X(max)(X(load)(at), X(load)(at + 16)), X(max)(X(load)(at + 32), X(load)(at + 48)));
    }
    grown = X(highest)(part);
    if (grown > *max) {
        factor = specdec__float_from_bits((uint32_t)X(first_bits)(X(exp)(X(set)(*max - grown))));
        *max = grown;
    }
    highest = X(set)(*max);
    for (i = 0; i < SPECDEC__KEYS; i += SPECDEC__LANES)
        X(store)(scores + i, X(exp)(X(sub)(X(load)(scores + i), highest)));
    X(outside)(scores, from, to, 0);
    for (p = 0; p < 16; p += SPECDEC__LANES) {
        V total = X(mul)(X(load)(sums + p), X(set)(factor));

        for (i = p; i < SPECDEC__KEYS; i += 16)
            total = X(add)(total, X(load)(scores + i));
        X(store)(sums + p, total);
    }
    return factor;
}

/* out (query, chunks vectors from d on) += over keys, in order, weight * value; lanes are dimensions. */
SPECDEC__LANE_INLINE void X(weigh_chunk)(const float *weights, const float *values, int valid, int dim,
                                         float *const *out, int d, int count, int chunks)
{
    V acc[4][SPECDEC__WIDTH];
    int c, i, j;

    SPECDEC__UNROLL
    for (c = 0; c < count; c++)
        SPECDEC__UNROLL
        for (i = 0; i < chunks; i++)
            acc[c][i] = X(load)(out[c] + d + i * SPECDEC__LANES);
    for (j = 0; j < valid; j++)
        X(add_row)(acc, weights + j, SPECDEC__KEYS, values + j * dim + d, count, chunks);
    SPECDEC__UNROLL
    for (c = 0; c < count; c++)
        SPECDEC__UNROLL
        for (i = 0; i < chunks; i++)
            X(store)(out[c] + d + i * SPECDEC__LANES, acc[c][i]);
}

/* out[i] (dim) += over j < valid, in order, weights (count <= 4, 64) * values (64, dim). */
SPECDEC__LANE void X(weigh)(const float *weights, int count, const float *values, int valid, int dim, float *const *out)
{
    int d = 0, c;

    for (; d + SPECDEC__LANES * SPECDEC__WIDTH <= dim; d += SPECDEC__LANES * SPECDEC__WIDTH) {
        if (SPECDEC__TOGETHER > 1 && count == SPECDEC__TOGETHER)
            X(weigh_chunk)(weights, values, valid, dim, out, d, SPECDEC__TOGETHER, SPECDEC__WIDTH);
        else
            for (c = 0; c < count; c++)
                X(weigh_chunk)(weights + c * SPECDEC__KEYS, values, valid, dim, out + c, d, 1, SPECDEC__WIDTH);
    }
    for (; d < dim; d += 16)
        for (c = 0; c < count; c++)
            X(weigh_chunk)(weights + c * SPECDEC__KEYS, values, valid, dim, out + c, d, 1, 1);
}

/* The sum of x (16). */
SPECDEC__LANE float X(total)(const float *x)
{
    V parts[SPECDEC__PARTS];
    int p;

    for (p = 0; p < SPECDEC__PARTS; p++)
        parts[p] = X(load)(x + p * SPECDEC__LANES);
    return X(sum)(parts);
}

/* x = a * x, elementwise. */
SPECDEC__LANE void X(scale)(float *x, float a, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store)(x + i, X(mul)(X(load)(x + i), X(set)(a)));
}

/* x = x + a * y, elementwise. */
SPECDEC__LANE void X(add_scaled)(float *x, float a, const float *y, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store)(x + i, X(madd)(X(set)(a), X(load)(y + i), X(load)(x + i)));
}

/* tanh(y) = 1 - 2 / (1 + e^(2y)) */
SPECDEC__LANE void X(cap)(float *x, float cap, int count)
{
    const V twice = X(set)(2 / cap), limit = X(set)(cap);
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store)(x + i, X(mul)(limit, X(sub)(X(set)(1), X(gated)(X(set)(2), X(mul)(X(load)(x + i), twice)))));
}

/* out (count, stride) = sums (count, 16) [+ bias]. */
SPECDEC__LANE void X(put)(const float *sums, int count, const float *bias, float *out, size_t stride)
{
    int c, p;

    for (p = 0; p < 16; p += SPECDEC__LANES) {
        V b = bias ? X(load)(bias + p) : X(set)(0);

        for (c = 0; c < count; c++) {
            V sum = X(load)(sums + c * SPECDEC__ROWS + p);

            X(store)(out + (size_t)c * stride + p, bias ? X(add)(sum, b) : sum);
        }
    }
}

/* Half floats to floats. */
SPECDEC__LANE void X(f16_to_float)(const void *in, int count, float *out)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store)(out + i, X(load_f16)((const unsigned char *)in + i * 2));
}

/* Floats to half floats. */
SPECDEC__LANE void X(float_to_f16)(const float *in, int count, void *out)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store_f16)((unsigned char *)out + i * 2, X(load)(in + i));
}

/* The nearest codes in [-127, 127] to 32 values over a scale, which is the largest of them over 127 and is returned. */
SPECDEC__LANE float X(float_to_codes)(const float *values, int8_t *codes)
{
    V sizes[SPECDEC__PARTS];
    float scale, inverse;
    int i;

    for (i = 0; i < SPECDEC__PARTS; i++) {
        V x0 = X(load)(values + i * SPECDEC__LANES), x1 = X(load)(values + 16 + i * SPECDEC__LANES);

        sizes[i] = X(max)(X(max)(X(sub)(X(set)(0), x0), x0), X(max)(X(sub)(X(set)(0), x1), x1));
    }
    scale = X(highest)(sizes) * (1.0f / 127.0f);
    inverse = scale > 1e-30f && scale < 1e30f ? 1.0f / scale : 0;
    SPECDEC__EACH_PART
    for (i = 0; i < 32; i += SPECDEC__LANES)
        X(store_low_bytes)(codes + i, X(madd)(X(load)(values + i), X(set)(inverse), X(set)(12582912.0f)));
    return inverse > 0 ? scale : 0;
}

/* out (count) = codes * scales (count / 32). */
SPECDEC__VECTORISE SPECDEC__LANE void X(codes_to_float)(const int8_t *codes, const float *scales, int count, float *out)
{
    int i, j;

    for (i = 0; i < count; i += 32)
        for (j = 0; j < 32; j++)
            out[i + j] = scales[i / 32] * (float)codes[i + j];
}

/* --- loops over a vocabulary, in a form that compilers vectorise -------------------------------------------------- */

/* The largest of x (count); NaN does not count; -infinity if there is nothing else. */
SPECDEC__VECTORISE SPECDEC__LANE float X(largest)(const float *x, int count)
{
    float lanes[16];
    int i, j;

    for (j = 0; j < 16; j++)
        lanes[j] = specdec__float_from_bits(0xff800000u);
    for (i = 0; i + 16 <= count; i += 16)
        for (j = 0; j < 16; j++)
            lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (; i < count; i++)
        lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
    for (j = 1; j < 16; j++)
        lanes[0] = lanes[j] > lanes[0] ? lanes[j] : lanes[0];
    return lanes[0];
}

/* With c = 1 - u, u uniform in (0, 1), the noise -log(-log(u)) is at most -log(c): it lifts y to `wanted` only if c is
   at most e^(y - wanted). In place of that power stands the straight line between its neighbours 2^k and 2^(k+1), which
   lies above it. */
SPECDEC__VECTORISE SPECDEC__LANE int X(hopefuls)(const float *logits, int count, float best, float inverse,
                                                 float wanted, uint64_t noise_row, uint32_t first)
{
    const float slack = 0.01f;
    int32_t complement[64]; /* of u, in 1/2^31, rounded down */
    int i, found = 0;

    for (i = 0; i < count; i++)
        complement[i] = (int32_t)(uint32_t)(~specdec__noise_at(noise_row, first + (uint32_t)i) >> 33);
    for (i = 0; i < count; i++) {
        float y = (logits[i] - best) * inverse - wanted + slack;

        y = y < 0.0f ? y : 0.0f;
        y = y > -80.0f ? y : -80.0f; /* NaN, too */
        found += (float)complement[i] * 4.656e-10f <=
                 specdec__float_from_bits((uint32_t)((int32_t)(y * 12102203.0f) + 0x3f800000));
    }
    return found;
}

/* e^((logit - best) / temperature), 0 where that is below e^-87. */
SPECDEC__LANE_INLINE V X(weight)(const float *logits, V best, V temperature)
{
    V p = X(exp)(X(div)(X(sub)(X(load)(logits), best), temperature)), least = X(exp)(X(set)(-87.0f));

    return X(max)(X(sub)(p, least), X(set)(0)); /* least is also what NaN gives */
}

/* p (count) = the same of every logit. */
SPECDEC__LANE void X(weights)(const float *logits, int count, float best, float temperature, float *p)
{
    const V highest = X(set)(best), heat = X(set)(temperature);
    float rest[SPECDEC__LANES] = {0};
    int i;

    for (i = 0; i + SPECDEC__LANES <= count; i += SPECDEC__LANES)
        X(store)(p + i, X(weight)(logits + i, highest, heat));
    memcpy(rest, logits + i, (size_t)(count - i) * sizeof *rest);
    X(store)(rest, X(weight)(rest, highest, heat));
    memcpy(p + i, rest, (size_t)(count - i) * sizeof *rest);
}

/* Adds max(target - high * draft - low * draft - uniform, 0) to residuals[i % 16] and draft to weights[i % 16]. */
SPECDEC__VECTORISE SPECDEC__LANE void X(residuals)(const float *target, const float *draft, int count, double high,
                                                   double low, double uniform, double *residuals, double *weights)
{
    double r[16], w[16];
    int i, j;

    memcpy(r, residuals, sizeof r);
    memcpy(w, weights, sizeof w);
    for (i = 0; i + 16 <= count; i += 16)
        for (j = 0; j < 16; j++) {
            double q = (double)draft[i + j], rest = (double)target[i + j] - high * q - low * q - uniform;

            r[j] += rest > 0.0 ? rest : 0.0;
            w[j] += q;
        }
    for (j = 0; i < count; i++, j++) {
        double q = (double)draft[i], rest = (double)target[i] - high * q - low * q - uniform;

        r[j] += rest > 0.0 ? rest : 0.0;
        w[j] += q;
    }
    memcpy(residuals, r, sizeof r);
    memcpy(weights, w, sizeof w);
}

#pragma pop_macro("V")
#pragma pop_macro("X")
#undef SPECDEC__LANE
#undef SPECDEC__LANE_INLINE
#undef SPECDEC__LANE_LONG
#undef SPECDEC__LANES
#undef SPECDEC__PARTS
#undef SPECDEC__ROWS_AT_ONCE
#undef SPECDEC__EACH_PART
#undef SPECDEC__TOGETHER
#undef SPECDEC__ISA
#undef SPECDEC__TARGET
#undef SPECDEC__WIDTH

#endif /* SPECDEC__ISA */

/* MIT License

   Copyright (c) 2026 The specdec.h founders

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
   documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
   rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
   permit persons to whom the Software is furnished to do so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
   Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
   WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
   COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
   OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
