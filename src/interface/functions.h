#pragma once
#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sampling on arrays: from a row of logits to tokens. --------------------------------------------------------- */

/* The candidates at one position: tokens that may be sampled. */
typedef struct specdec_candidates {
    specdec_candidate *items; /* [vocab], the caller's memory; the first count are filled, in no promised order */
    int count;                /* how many candidates there are */
    int greedy;               /* not 0: no noise, the largest logit wins */
} specdec_candidates;

/* Turns logits[vocab] into candidates: biased, then by the samplers in their order, shifted so that the best is 0, the
   temperature included. recent[recent_count] is the text so far, newest last (ids outside the vocabulary are skipped);
   its length is the position of XTC's noise; mirostat begins as an answer does.
   out->items must have room for vocab items. NaN counts as -infinity; a row of nothing else gives token 0. At
   temperature 0 every token stays. O(vocab), no memory. Errors: SPECDEC_ERROR_ARGUMENT. */
SPECDEC_DEF specdec_result specdec_sample_filter(specdec_candidates *out, const specdec_sampling *sampling, const float
                                                 *logits, int vocab, const int32_t *recent, int recent_count,
                                                 specdec_error *error);

/* Writes the k best candidates by logit + Gumbel(seed, position, token), best first, to best[k] (its logit is that
   sum); the first is a sample from the candidates' distribution, the first k are k samples without replacement, in draw
   order. Target and draft that use the same seed and position choose alike (Daliri et al. 2024, arXiv 2408.07978).
   Greedy candidates get no noise. Equal sums: the lower token. Returns how many there are: fewer than k when candidates
   run out. */
SPECDEC_DEF int specdec_sample_top(const specdec_candidates *candidates, uint64_t seed, uint64_t position, int k,
                                   specdec_candidate *best);

/* Computes the candidates' distribution, p[vocab], which sums to 1; zero for tokens that are no candidates. Greedy: all
   on the best. Errors: SPECDEC_ERROR_ARGUMENT. */
SPECDEC_DEF specdec_result specdec_sample_distribution(const specdec_candidates *candidates, int vocab, float *p,
                                                       specdec_error *error);

/* A source of uniform numbers that is a function of (seed, position, decision): start every position of the text with
   decision 0. Independent of the noise in specdec_sample_top for the same seed. */
typedef struct specdec_uniform {
    uint64_t seed, position; /* of the sampling; of the token in the text */
    uint32_t decision;       /* counts up by itself; below 2^31 */
} specdec_uniform;

/* Returns the next uniform number, strictly between 0 and 1 (NULL: 0). */
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
    int capacity;     /* nodes that the arrays have room for */
    int n;            /* nodes, root included */
} specdec_tree;

/* An acceptance vector p[width]: p[k-1] is the probability that the k-th child of an accepted node is accepted and the
   children before it are not. Not negative, sums to at most 1, often not monotone.

   Functions that build a tree fail with SPECDEC_ERROR_BUFFER when its arrays are too short; tree->n is then the needed
   count. Everything else they dislike is SPECDEC_ERROR_ARGUMENT. */

/* Checks the rules of specdec_tree. Errors: SPECDEC_ERROR_ARGUMENT, and which node breaks which rule. */
SPECDEC_DEF specdec_result specdec_tree_check(const specdec_tree *tree, specdec_error *error);

/* Returns the levels of a valid tree (NULL: 0), root included. depths[n], if not NULL: distances from the root. */
SPECDEC_DEF int specdec_tree_depth(const specdec_tree *tree, int32_t *depths);

/* Builds chains of `length` nodes below the root, level by level; (1, n - 1): plain speculation, (0, 0): only the
   root. */
SPECDEC_DEF specdec_result specdec_tree_chains(specdec_tree *tree, int chains, int length, specdec_error *error);

/* Builds the tree of d levels in which every inner node has k children. */
SPECDEC_DEF specdec_result specdec_tree_full(specdec_tree *tree, int k, int d, specdec_error *error);

/* Computes the expected tokens a step, the bonus token included: F(T) = the sum over nodes of the product of p[rank-1]
   on the path from the root. Ranks past width count as never accepted. */
SPECDEC_DEF specdec_result specdec_tree_score(double *score, const specdec_tree *tree, const double *p, int width,
                                              specdec_error *error);

/* Returns the bytes of memory for specdec_tree_best and specdec_tree_grid; 0 when a number is out of its limits. */
SPECDEC_DEF size_t specdec_tree_memory(int n, int d, int width);

/* Builds the tree with exactly n nodes and at most d levels that scores highest, level by level, and its score G(n,d)
   (may be NULL): the exact dynamic programme of Sequoia (Chen et al. 2024, arXiv 2402.12374), O(n^2 d width) time.
   Errors also: SPECDEC_ERROR_MEMORY; SPECDEC_ERROR_ARGUMENT when n nodes do not fit into d levels. */
SPECDEC_DEF specdec_result specdec_tree_best(specdec_tree *tree, double *score, const double *p, int width, int n, int
                                             d, void *memory, size_t bytes, specdec_error *error);

/* Computes all scores: grid[m * (d + 1) + l] becomes G(m,l) for m <= n, l <= d, and 0 where there is no such tree. */
SPECDEC_DEF specdec_result specdec_tree_grid(double *grid, const double *p, int width, int n, int d, void *memory,
                                             size_t bytes, specdec_error *error);

/* Finds the (n,d) with the highest rate G(n,d) / (t(n) + d * draft_time) in a grid, for t(widths[i]) = times[i], in any
   one unit of time. Of equals the first wins: earlier in widths, then fewer levels. best_rate, in tokens a unit of
   time, may be NULL. */
SPECDEC_DEF specdec_result specdec_tree_choose(int *best_n, int *best_d, double *best_rate, const double *grid, int n,
                                               int d, const int32_t *widths, const double *times, int count, double
                                               draft_time, specdec_error *error);

/* Builds the tree of the default family (at most 64 nodes; made by tools/specdec-tune) with the highest rate, F(T) /
   (t(n) + d * draft_time), for a live acceptance vector, times[m] being t(m) for m = 1..n (times[0] unread); the root
   alone, at the rate 1 / t(1), when no tree is faster. Trees above n nodes or tree->capacity are left out. best_rate
   may be NULL. Takes microseconds. */
SPECDEC_DEF specdec_result specdec_tree_pick(specdec_tree *tree, double *best_rate, const double *p, int width, const
                                             double *times, int n, double draft_time, specdec_error *error);

/* Keeps the min(n, count) most probable of count candidate nodes (a tree in topological order, the root first).
   probability is that of the path from the root, so never above the parent's; of equals the earlier is kept. kept[n]
   becomes the kept candidates, in order, tree their shape. EAGLE-2 (Li et al. 2024, arXiv 2406.16858), OPT-Tree (Wang
   et al. 2024, arXiv 2406.17276). For the rejection rules a sibling's probability must not be above that of the sibling
   drawn before it. */
SPECDEC_DEF specdec_result specdec_tree_grow(specdec_tree *tree, int32_t *kept, const int32_t *parents, const float
                                             *probability, int count, int n, specdec_error *error);

/* ---- Verifiers: which child of a node is accepted. --------------------------------------------------------------- */

/* One decision: the distributions after a node and the node's children. Only the random source changes. */
typedef struct specdec_choice {
    const float *target;     /* [vocab], not negative; need not sum to 1 */
    const float *draft;      /* [vocab], likewise; may be NULL for the last two rules, or without children */
    const int32_t *children; /* [child_count] tokens, in draw order */
    int vocab;               /* tokens of the vocabulary */
    int child_count;         /* how many children there are */
    specdec_uniform *random; /* at decision 0 of the position being decided; NULL is enough for the greedy rule */
} specdec_choice;

/* The result of a specdec_choice. */
typedef struct specdec_verdict {
    int child;     /* index of the accepted child; -1: none, and token is the bonus token */
    int32_t token; /* the token at this position in either case */
} specdec_verdict;

/* Decides which child of a node is accepted, by any rule but coupled (see specdec_verify_match). A child drawn twice
   without replacement, or never by this draft, is skipped; for Sequoia, a child behind all that this draft can draw is
   a uniform draw: leave out children whose draft share is 0. A few passes over the vocabulary, one for each rejected
   child (SpecTr: 30). Errors: ARGUMENT. */
SPECDEC_DEF specdec_result specdec_verify(specdec_rule rule, const specdec_choice *choice, specdec_verdict *verdict,
                                          specdec_error *error);

/* Decides which child of a node is accepted where the target's own token is known, from specdec_sample_top: the rule of
   coupled sampling and of greedy decoding. */
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

/* Sets the tree that the draft model fills from now on, at every step, such as one from specdec-tune, of at most
   config.tree_size nodes and config.tree_depth levels; one node: plain decoding. The tree is copied. Only with
   SPECDEC_DRAFT_MODEL and static policy. Errors: ARGUMENT. */
SPECDEC_DEF specdec_result specdec_set_tree(specdec *engine, const specdec_tree *tree);

/* ---- Constraints: texts that obey a grammar or a schema. ----------------------------------------------------------

   A constraint says which bytes may follow a text. It is compiled once into memory of the caller's, is read-only after
   that, and serves any number of texts and threads; it holds no pointers, so its specdec_constraint_bytes may be copied
   (8-byte aligned). Each text has a state of its own, which may be copied. Whatever is allowed can be brought to an
   end: there are no dead ends. A text nests at most 48 deep. */
typedef struct specdec_constraint_state specdec_constraint_state;
typedef struct specdec_token_trie specdec_token_trie;

typedef enum specdec_constraint_kind {
    SPECDEC_CONSTRAINT_JSON,    /* any JSON value; no text */
    SPECDEC_CONSTRAINT_SCHEMA,  /* a JSON schema (2020-12, also as older ones write it): see docs/manual.md */
    SPECDEC_CONSTRAINT_GBNF,    /* a grammar of llama.cpp, whose first rule is root */
    SPECDEC_CONSTRAINT_REGEX,   /* a regular expression of ECMA-262 that the whole text matches */
    SPECDEC_CONSTRAINT_CHOICES, /* one of several texts */
    SPECDEC_CONSTRAINT_TOOLS,   /* a call of a tool, for settings.calls: text is a JSON array of tools, as in requests;
                                   choices, if any, name the tools that may be called. In the form `calls` */
    SPECDEC_CONSTRAINT_KINDS
} specdec_constraint_kind;

/* The source of a constraint. It is read by the call alone. */
typedef struct specdec_constraint_source {
    specdec_constraint_kind kind; /* what text is */
    const char *text;           /* the schema, grammar or expression */
    size_t length;              /* its bytes; SPECDEC_WHOLE_STRING: it ends with a zero byte */
    const char *const *choices; /* (choice_count) texts to choose from */
    int choice_count;           /* how many choices there are */
    const char *calls;          /* of tools: the form in which the model writes calls (specdec_model_info) */
    int compact;                /* JSON and schemas: not 0: without white space; 0: it may stand wherever JSON has it */
} specdec_constraint_source;

/* Computes bytes of memory to compile a constraint in, enough for all but unusual sources; specdec_constraint_bytes are
   needed afterwards. If they are too few, specdec_constraint_init returns MEMORY. Errors: ARGUMENT. */
SPECDEC_DEF specdec_result specdec_constraint_needed(const specdec_constraint_source *source, size_t *bytes,
                                                     specdec_error *error);

/* Compiles a constraint; the work is bounded for any source. Errors: ARGUMENT, MEMORY; FORMAT: the source is malformed,
   or nothing can match it; UNSUPPORTED: it asks for a feature that is missing. The error text names line and column, or
   the schema's keyword and its path. */
SPECDEC_DEF specdec_result specdec_constraint_init(const specdec_constraint **constraint,
                                                   const specdec_constraint_source *source, void *memory, size_t bytes,
                                                   specdec_error *error);

/* Returns the bytes of a compiled constraint, counted from its address; and a hash that differs between constraints. */
SPECDEC_DEF size_t specdec_constraint_bytes(const specdec_constraint *constraint);
SPECDEC_DEF uint64_t specdec_constraint_hash(const specdec_constraint *constraint);

/* Makes the state of an empty text, in memory of specdec_constraint_state_bytes (4-byte aligned); a state may be copied
   as bytes. NULL when the memory is too small. */
SPECDEC_DEF size_t specdec_constraint_state_bytes(const specdec_constraint *constraint);
SPECDEC_DEF specdec_constraint_state *specdec_constraint_begin(const specdec_constraint *constraint, void *memory,
                                                               size_t bytes);

/* Adds bytes to the text. Returns how many of them were accepted: the next one may not follow. */
SPECDEC_DEF size_t specdec_constraint_advance(const specdec_constraint *constraint, specdec_constraint_state *state,
                                              const void *bytes, size_t count);

/* Whether these bytes may follow. The state does not change. */
SPECDEC_DEF int specdec_constraint_allows(const specdec_constraint *constraint, const specdec_constraint_state *state,
                                          const void *bytes, size_t count);

/* Whether the text is complete and may end here. More bytes may be allowed to follow. */
SPECDEC_DEF int specdec_constraint_complete(const specdec_constraint *constraint,
                                            const specdec_constraint_state *state);

/* Computes which bytes may follow: bit byte % 32 of mask[byte / 32]. Returns how many bytes may. */
SPECDEC_DEF int specdec_constraint_next(const specdec_constraint *constraint, const specdec_constraint_state *state,
                                        uint32_t mask[8]);

/* Writes the bytes that must follow, as no others may and the text is incomplete: at most room. Returns how many. */
SPECDEC_DEF size_t specdec_constraint_forced(const specdec_constraint *constraint,
                                             const specdec_constraint_state *state, void *bytes, size_t room);

/* Makes a trie of the tokens of a vocabulary, ordered by their bytes, for masks: once for a model. The memory must
   stay. Errors: ARGUMENT, MEMORY. */
SPECDEC_DEF specdec_result specdec_token_trie_needed(const specdec_model *model, size_t *bytes, specdec_error *error);
SPECDEC_DEF specdec_result specdec_token_trie_init(const specdec_token_trie **trie, const specdec_model *model,
                                                   void *memory, size_t bytes, specdec_error *error);

/* Computes which tokens may follow: bit token % 32 of mask[token / 32], for the whole vocabulary; tokens that end a
   text may where it is complete. Control tokens, tokens without bytes and tokens above 255 bytes may not. Needs memory
   of specdec_constraint_mask_memory bytes (8-byte aligned) for the call. Returns 0 when that is too little. */
SPECDEC_DEF size_t specdec_constraint_mask_memory(const specdec_constraint *constraint);
SPECDEC_DEF int specdec_constraint_mask(const specdec_constraint *constraint, const specdec_constraint_state *state,
                                        const specdec_token_trie *trie, uint32_t *mask, void *memory, size_t bytes);

/* Whether one token may follow: its bit in the mask of specdec_constraint_mask. */
SPECDEC_DEF int specdec_constraint_token(const specdec_constraint *constraint, const specdec_constraint_state *state,
                                         const specdec_token_trie *trie, int32_t token);

/* ---- Files and types: what GGUF files hold, and number formats, without an engine. ------------------------------- */

/* Bytes in memory that another object owns. A string of a file is not terminated and need not be UTF-8. */
typedef struct specdec_bytes {
    const unsigned char *data; /* the first byte; NULL: none */
    size_t size;               /* number of bytes */
} specdec_bytes;

/* Types of metadata values, by their numbers in files. */
typedef enum specdec_gguf_type {
    SPECDEC_GGUF_U8, SPECDEC_GGUF_I8, SPECDEC_GGUF_U16, SPECDEC_GGUF_I16, SPECDEC_GGUF_U32, SPECDEC_GGUF_I32,
    SPECDEC_GGUF_F32, SPECDEC_GGUF_BOOL, SPECDEC_GGUF_STRING, SPECDEC_GGUF_ARRAY, SPECDEC_GGUF_U64,
    SPECDEC_GGUF_I64, SPECDEC_GGUF_F64, SPECDEC_GGUF_TYPES
} specdec_gguf_type;

/* A metadata value. Its bytes are as in the file: little-endian, not aligned. */
typedef struct specdec_gguf_value {
    uint32_t type;              /* a specdec_gguf_type; of an array, the type of its items */
    int is_array;               /* not 0: an array */
    uint64_t count;             /* items of an array; bytes of a string; else 1 */
    const unsigned char *items; /* the value, in the file */
    size_t bytes;               /* all bytes of the value or items */
} specdec_gguf_value;

/* A metadata pair. */
typedef struct specdec_gguf_pair {
    specdec_bytes key;          /* such as "general.architecture" */
    specdec_gguf_value value;   /* the value of the key */
    specdec_bytes record;       /* the pair as it stands in the file, to be copied */
} specdec_gguf_pair;

/* A tensor. */
typedef struct specdec_gguf_tensor {
    specdec_bytes name;         /* such as "blk.0.attn_q.weight" */
    uint32_t type;              /* number of its type: see specdec_type_by_number */
    int dimensions;             /* 1..4 */
    uint64_t shape[4];          /* shape[0] is the length of a row; unused ones are 1 */
    const unsigned char *data;  /* inside the file */
    size_t size;                /* bytes at data; 0 for a type that is not known */
} specdec_gguf_tensor;

#define SPECDEC_GGUF_LONG 8 /* long arrays whose ends are stored */

/* An open GGUF file. Its members may be read, not written. */
typedef struct specdec_gguf {
    specdec_bytes file;         /* the whole file */
    uint64_t pair_count, tensor_count; /* metadata pairs, tensors */
    size_t alignment;           /* of tensors, in bytes */
    size_t pairs_at, tensors_at, tensors_end, data_at; /* offsets in the file */
    struct {
        size_t from, to;
    } strings[SPECDEC_GGUF_LONG]; /* long arrays of strings, whose end only a walk over all strings finds */
    int strings_count;            /* how many `strings` are filled in */
} specdec_gguf;

/* Opens a GGUF file (version 2 or 3; format: ggml/docs/gguf.md) that lies in memory, and checks all of its structure:
   each record, that no key and no tensor is there twice, that the data of tensors neither overlap nor leave gaps. The
   memory must stay as it is while *gguf and what came from it are used; nothing needs to be closed. Errors: ARGUMENT,
   FORMAT, UNSUPPORTED (another version); the file then counts as empty. */
SPECDEC_DEF specdec_result specdec_gguf_open(specdec_gguf *gguf, const void *data, size_t size, specdec_error *error);

/* Finds the value of a key, or the tensor of a name. Returns 1 when it is there, else 0. */
SPECDEC_DEF int specdec_gguf_find(const specdec_gguf *gguf, const char *key, specdec_gguf_value *value);
SPECDEC_DEF int specdec_gguf_find_tensor(const specdec_gguf *gguf, const char *name, specdec_gguf_tensor *tensor);

/* Iterate over pairs and tensors of a file, and strings of an array. *place begins as 0. Return 0 behind the last
   one. */
SPECDEC_DEF int specdec_gguf_next_pair(const specdec_gguf *gguf, size_t *place, specdec_gguf_pair *pair);
SPECDEC_DEF int specdec_gguf_next_tensor(const specdec_gguf *gguf, size_t *place, specdec_gguf_tensor *tensor);
SPECDEC_DEF int specdec_gguf_next_string(const specdec_gguf_value *array, size_t *place, specdec_bytes *string);

/* Read item i of an array, or with i = 0 a single value, as an integer (bools, too; larger ones become INT64_MAX) or as
   a real number (integers, too). Return 0 when it is of another kind, or when there is no such item. */
SPECDEC_DEF int specdec_gguf_integer(const specdec_gguf_value *value, uint64_t i, int64_t *out);
SPECDEC_DEF int specdec_gguf_real(const specdec_gguf_value *value, uint64_t i, double *out);

/* Read the integer or bool in [low, high], finite f32, or string of a key. When the key is absent, *out keeps its
   value, the default. Errors: ARGUMENT; FORMAT (another type, or out of range), and which key. */
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
    int block, bytes; /* values of a block; bytes of a block */
    int writable;     /* specdec_type_from_float writes it */
} specdec_type;

#define SPECDEC_TYPE_NUMBERS 43 /* numbers of types are smaller; not every smaller number is a type */

/* Find a type by its number or name. Return 0 when it is not known. */
SPECDEC_DEF int specdec_type_by_number(uint32_t number, specdec_type *type);
SPECDEC_DEF int specdec_type_by_name(const char *name, specdec_type *type);
/* Finds a type that files may have and that cannot be read (bytes 0: its size is not known). Returns the name of the
   nearest type that can; NULL: this type can be read itself, or is not known. */
SPECDEC_DEF const char *specdec_type_not_read(uint32_t number, specdec_type *type);

/* Computes the bytes of `values` values of a type. Errors: ARGUMENT (an unknown type, no whole blocks, too many). */
SPECDEC_DEF specdec_result specdec_type_bytes(uint32_t number, uint64_t values, size_t *bytes, specdec_error *error);

/* Convert values (whole blocks) of a type to floats, and back with the smallest squared error found; a block with NaNs,
   or numbers beyond half floats, gets any values. Errors: ARGUMENT; UNSUPPORTED (only read, or left out). */
SPECDEC_DEF specdec_result specdec_type_to_float(uint32_t number, const void *data, size_t values, float *out,
                                                 specdec_error *error);
SPECDEC_DEF specdec_result specdec_type_from_float(uint32_t number, const float *values, size_t count, void *out,
                                                   specdec_error *error);

/* Returns the name of an instruction set of this CPU and build, from the plainest (0) to the best; NULL behind the
   last. */
SPECDEC_DEF const char *specdec_isa_name(int index);

/* Returns how many processors this process may use, 1 to SPECDEC_MAX_THREADS; 1 in a build without threads. */
SPECDEC_DEF int specdec_processors(void);

/* Facts about a prepared model. */
typedef struct specdec_model_info {
    const char *architecture, *chat_format; /* NULL where they are not known, or only the vocabulary was prepared */
    const char *tokenizer, *words;          /* "SPM"; or "byte-level BPE" and its pre-tokenizer's name */
    int has_template;                       /* not 0: the file has a chat template, recognised or not */
    const char *call_format, *thought_format; /* how the model writes calls of tools and thoughts; NULL: unknown */
    int context, vocabulary, layers, embedding, feed_forward; /* context: tokens that the model was trained for */
    int heads, kv_heads, head_size, experts, chosen; /* experts of a layer, 0: none; chosen for a token */
    int recurrent_layers;                   /* layers with a recurrent state, instead of keys or besides */
    const char *recurrent;                  /* the kind of the recurrent layers; NULL: there are none */
    const char *drafts;                     /* kind of a model that can only draft: "DSpark"; NULL: it can decode */
    int block;                              /* tokens that it drafts in one pass, the root's included; 0: one */
    size_t state_bytes;                     /* of the recurrent state of a sequence */
    int window, window_layers;              /* keys that some layers see, and how many layers those are; 0: none */
    size_t weight_bytes;                    /* of the matrices that a step reads */
    uint64_t products_per_token;            /* multiply-adds in matrices */
    const specdec_gguf *gguf;               /* the model's file; of several files the first */
} specdec_model_info;

/* Fills in the facts about a model; their strings are valid as long as the model. Errors: ARGUMENT. */
SPECDEC_DEF specdec_result specdec_get_model_info(const specdec_model *model, specdec_model_info *info);

#ifdef __cplusplus
}
#endif
