/* =====================================================================================================================
 * >>kernel/kernel: matrix tiles times columns and float loops: the canonical order of sums, and the table of functions
 *     that an instruction set fills.
 *
 * Canonical order (law 1). A weight matrix is stored in tiles of 16 rows, and vector lanes are rows, never parts of one
 * sum. A column of activations is quantised in blocks of 32 values: x = scale * (code + offset), code in [-127, 127].
 *     sum    = exact integer sum of weight code * (code + offset) over a granule (16 or 32 values)
 *     result = fma(weight scale * scale, (float)sum, result)
 *     result = fma(minimum, scale * (float)(sum of code + offset), result)       types with a minimum only
 * granule after granule. Float weights: result = fma(weight, x, result), value after value.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/tiles.h"
#include "../quant/planes.h"

#define SPECDEC__ROWS SPECDEC__TILE_ROWS /* rows of a tile, lanes of a vector: 16 */
#define SPECDEC__PANEL 256                /* values of each row that are unpacked at a time */
#define SPECDEC__AHEAD 4096               /* bytes that x86 prefetches ahead, */
#define SPECDEC__LEAD 1024                /* and into the first cache, if those come into the second */
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
        const unsigned char *planes;                   /* as in specdec__tiles */
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
typedef void specdec__pair_function(const specdec__panel *panels, int blocks, const specdec__columns *x, int block,
                                    int column, int count, float *const *sums);
/* A run of values of one or two tiles of the same type; the second is NULL if there is none. */
typedef struct specdec__tiles {
    const specdec__quant_type *type;
    const unsigned char *tile[2];
    const unsigned char *next[2]; /* what is likely to be multiplied after them; any address */
    const unsigned char *planes;  /* where the upper planes of a matrix begin; tile: where those of a tile do */
    int lead;                     /* as in specdec__reading; specdec__kernels_multiply sets it */
} specdec__tiles;
/* sums[i] (count, 16) += blocks*32 values of tile i times columns [column, column + count), from block `block` on; when
   that is 0, sums begin at zero. panels: room for two. */
typedef void specdec__multiply_function(const specdec__tiles *tiles, int blocks, specdec__panel *panels,
                                        const specdec__columns *x, int block, int column, int count,
                                        float *const *sums);
/* sums[i] (16) = 16 rows, row_bytes apart, where tile i says, of blocks*32 values, a multiple of 512, times the only
   column there is. room: as much as tiles of 256 values of 32 rows take at most. */
typedef void specdec__rows_function(const specdec__tiles *tiles, size_t row_bytes, int blocks,
                                    const specdec__columns *x, void *room, float *const *sums);

/* Which keys of a block a query sees, or several: [from, to) of 64. */
typedef struct specdec__range {
    int from, to;
} specdec__range;

/* What queries have summed up over some keys, by query. */
typedef struct specdec__sums {
    float *highest; /* the largest score; SPECDEC__NO_SCORE: there was none yet */
    float *row;     /* (16 + dim): sums of exp(score - highest), then the sum of values, each times that */
    int width;      /* 16 + dim */
} specdec__sums;

#define SPECDEC__NO_SCORE -3.0e38f

/* A block of 64 keys for some queries, of which each has a softmax under way: what makes codes of their scores. */
typedef struct specdec__softening {
    float *scores;               /* (4, apart, 16): 16 keys of each query, in rows for `apart` queries; overwritten */
    const float *value_scales;   /* (64): 0 where no query sees the key */
    int apart, count;            /* count: of queries that are there */
    const size_t *query;         /* (count): which ones they are */
    const specdec__sums *sums;   /* of all queries: highest and the first 16 of a row go on */
    float *factor;               /* (count): what the growth of the largest score scales the rest of the row by */
    uint8_t *codes;              /* (count, 64): weights times value_scales, over a scale, 0 to 255 */
    float *scale;                /* (count): the largest of these products, over 255 */
} specdec__softening;

/* One update of a head of a recurrent layer: matrix (rows, values) *= decay; matrix += key * change^T, where change is
   rate * value or, where the layer corrects itself, rate * (value - matrix^T * key); out (values) = matrix^T * query.
   Sums over rows go in order. The gated delta rule (Yang et al. 2024, arXiv 2412.06464) and Mamba-2 (Dao and Gu 2024,
   arXiv 2405.21060) are of this form. */
typedef struct specdec__recurrence {
    float *matrix;
    int rows, values;   /* values: a multiple of 16 */
    int corrects;
    float decay, rate;
    const float *key;   /* (rows) */
    const float *query; /* (rows); NULL: no output is wanted */
    const float *value; /* (values) */
    float *out;         /* (values) */
} specdec__recurrence;

/* The float loops of an instruction set: name, result, parameters. They are written once, in >>kernel/lanes. */
#define SPECDEC__KERNEL_LOOPS(X, isa) \
    /* Values [from, to) of x * weight / rms(x (length)); x and weight are padded with zeros to a multiple of 16. */ \
    X(isa, norm, void, (const float *x, const float *weight, float epsilon, int length, int from, int to, float *out)) \
    /* The same of (x - mean(x)) * weight / its root mean square. */ \
    X(isa, layer_norm, void, (const float *x, const float *weight, float epsilon, int length, int from, int to, \
                              float *out)) \
    /* Blocks [from, to) of one row of values -> column c of columns. */ \
    X(isa, quantise, void, (const float *row, int from, int to, int c, const specdec__columns *out)) \
    /* x = x * sigmoid(by), elementwise. */ \
    X(isa, sigmoid, void, (float *x, const float *by, int count)) \
    /* x = silu(x) * by, elementwise. */ \
    X(isa, silu, void, (float *x, const float *by, int count)) \
    X(isa, gelu, void, (float *x, const float *by, int count)) \
    X(isa, gelu_exact, void, (float *x, const float *by, int count)) \
    /* x = max(x, 0) * by, elementwise: by itself, its square. */ \
    X(isa, relu, void, (float *x, const float *by, int count)) \
    /* SwiGLU of gpt-oss: x = g sigmoid(1.702 g) (u + 1) of g = min(x, 7) and u = by, but in [-7, 7]. */ \
    X(isa, clamped, void, (float *x, const float *by, int count)) \
    /* xIELU (Huang and Schlag 2024, arXiv 2411.13010), shape (4): a_p, a_n, beta, epsilon. x > 0: a_p x^2 + beta x; \
       else a_n (e^min(x, epsilon) - 1 - x) + beta x. */ \
    X(isa, xielu, void, (float *x, const float *shape, int count)) \
    /* out = x * cosine + partner * sine, elementwise, in place on x. */ \
    X(isa, rotate, void, (float *x, const float *partner, const float *cosine, const float *sine, int count)) \
    /* queries (count <= 4, dim) . keys (dim, 64), floats or half floats -> scores (count, 64), at least those of the \
       first `slots`. On the way `next`, keys (dim, 64) of two bytes each that will be wanted soon, is fetched; all at \
       once would stall. */ \
    X(isa, scores, void, (const float *queries, int dim, int count, const void *keys, int halves, int slots, \
                          const void *next, float *scores)) \
    /* scores (64), [from, to) of them -> exp(score - *max) in place, zeros beyond, once *max has grown to the largest \
       of them. Adds them to sums (16). Returns what the growth has scaled sums by: what came before has to be scaled \
       by it, too. */ \
    X(isa, softmax, float, (float *scores, int from, int to, float *max, float *sums)) \
    /* out[i] (dim) += over j < valid, in order, weights (count <= 4, 64) * values (64, dim), floats or half floats. \
       Fetches as many rows of `next`, values (64, dim) of two bytes each. */ \
    X(isa, weigh, void, (const float *weights, int count, const void *values, int halves, int valid, int dim, \
                         const void *next, float *const *out)) \
    /* Adds what the first count queries have summed up over other keys, which come behind. */ \
    X(isa, merge, void, (const specdec__sums *into, const specdec__sums *from, int count)) \
    /* Blocks [from, from + blocks) of a matrix in planes -> a tile of Q8_0. whole: 0: with SPECDEC__PLANE_MIDDLE in \
       place of the lower bits, which are not read. */ \
    X(isa, join, void, (const unsigned char *planes, size_t from, int blocks, int whole, unsigned char *tile)) \
    /* sums (count, 16) += 1e-30 + norms (count, SPECDEC__PLANE_PARTS) times bounds (parts, stride; 16 of each). */ \
    X(isa, widen, void, (float *sums, int count, const uint16_t *bounds, size_t stride, const float *norms)) \
    /* out (16) = 16 rows of Q8_0 of so many blocks, as they lie in the file, times a column, in the order of dots. */ \
    X(isa, pick, void, (const unsigned char *const *rows, int blocks, const specdec__columns *x, int column, \
                        float *out)) \
    /* out (count, stride) = sums (count, 16) [+ bias]. */ \
    X(isa, put, void, (const float *sums, int count, const float *bias, float *out, size_t stride)) \
    X(isa, scale, void, (float *x, float a, int count)) \
    /* out (count, a multiple of 16) = the sum over taps, in order, of weights (taps, stride) * rows[tap], [+ bias], \
       elementwise; then, if it is asked for, x / (1 + e^-x) of it. */ \
    X(isa, convolve, void, (const float *const *rows, const float *weights, size_t stride, int taps, \
                            const float *bias, int silu, int count, float *out)) \
    /* One update of a recurrent layer's head. */ \
    X(isa, recur, void, (const specdec__recurrence *r)) \
    X(isa, add_scaled, void, (float *x, float a, const float *y, int count)) \
    /* x = cap * tanh(x / cap). */ \
    X(isa, cap, void, (float *x, float cap, int count)) \
    /* The sum of x (16). */ \
    X(isa, total, float, (const float *x)) \
    /* Whether x (count, a multiple of 16) times factor are all finite. */ \
    X(isa, sound, int, (const float *x, float factor, int count)) \
    X(isa, f16_to_float, void, (const void *in, int count, float *out)) \
    X(isa, float_to_f16, void, (const float *in, int count, void *out)) \
    /* The nearest codes in [-127, 127] to values (count, a multiple of 32) over a scale, which is the largest of them \
       over 127 and is returned. */ \
    X(isa, float_to_codes, float, (const float *values, int count, int8_t *codes)) \
    /* softmax of several queries, whose weights times the scales of values become codes. */ \
    X(isa, soften, void, (const specdec__softening *s)) \
    /* The largest of x (count > 0); NaN does not count; -infinity if there is nothing else. */ \
    X(isa, largest, float, (const float *x, int count)) \
    /* How many tokens from the first on (all count, or a multiple of 64) cannot reach `wanted` once Gumbel noise is \
       added to (logit - best) * inverse, inverse > 0; the first is token `first` of the row of noise. May be too few, \
       is never too many. */ \
    X(isa, outdone, int, (const float *logits, int count, float best, float inverse, float wanted, \
                          uint64_t noise_row, uint32_t first)) \
    /* p = exp((logit - best) / temperature), 0 where that is below e^-87. */ \
    X(isa, weights, void, (const float *logits, int count, float best, float temperature, float *p)) \
    /* Adds e^(logit - best) to sums[i % 16], and where logit - best is above `least` to sums[16 + i % 16], too. */ \
    X(isa, mass, void, (const float *logits, int count, float best, float least, double *sums)) \
    /* Adds max(target - high * draft - low * draft - uniform, 0) to residuals[i % 16] and draft to weights[i % 16]. \
       The products are exact: high and low are floats in doubles. */ \
    X(isa, residuals, void, (const float *target, const float *draft, int count, double high, double low, \
                             double uniform, double *residuals, double *weights))

enum {
    SPECDEC__SILU, SPECDEC__GELU, SPECDEC__GELU_EXACT, SPECDEC__RELU, SPECDEC__CLAMPED, SPECDEC__XIELU,
    SPECDEC__ACTIVATIONS
};

#define SPECDEC__KERNEL_TYPE(isa, name, result, parameters) typedef result specdec__##name##_function parameters;
#define SPECDEC__KERNEL_MEMBER(isa, name, result, parameters) specdec__##name##_function *name;
SPECDEC__KERNEL_LOOPS(SPECDEC__KERNEL_TYPE, )

/* out[i] (dim) += scales[i] * (the exact sum over keys of codes (count, 64) * values), count <= 64. values: 8-bit codes
   (dim/16, 64/4, 16, 4), so that 4 keys of a dimension lie together. dim is a multiple of 32. Codes are zeros from key
   `keys` on, a multiple of 16. Up to count rounded up to a multiple of 4 there are codes, scales of 0 and places out,
   which may be one and the same; these come to nothing. On the way `next`, a page of keys and values that will be
   wanted soon, is fetched; NULL: none. */
typedef void specdec__weigh_codes_function(const int8_t *values, int dim, int keys, const uint8_t *codes,
                                           const float *scales, int count, const unsigned char *next,
                                           float *const *out);

/* How weights come from memory while few columns are multiplied. */
typedef struct specdec__reading {
    int apart; /* one tile after the other; 0: as multiply takes two */
    int lead;  /* how many bytes ahead they are fetched into the first cache */
} specdec__reading;

/* What an instruction set supplies. Every function gives the same bits in every table. An entry is NULL only where a
   number is no type's; in multiply, also where it would not be faster. */
typedef struct specdec__kernels {
    const char *name;
    specdec__reading reading, other; /* other: what may be faster on some machines; all 0: nothing is known */
    /* specdec__quant_interleave, or the same faster. */
    specdec__interleave_function *interleave;
    specdec__weigh_codes_function *weigh_codes;
    SPECDEC__KERNEL_LOOPS(SPECDEC__KERNEL_MEMBER, )
    int half_queries; /* up to so many queries, scores and weigh read half floats; more wait for floats made of them */
    specdec__silu_function *activate[SPECDEC__ACTIVATIONS]; /* silu, gelu and so on */
    /* Unpacks blocks*32 values of 16 rows from a tile. */
    specdec__unpack_function *unpack[SPECDEC__TYPE_COUNT];
    /* Adds panel * columns to sums (column, row). */
    specdec__dot_function *dot[SPECDEC__TYPE_COUNT];
    /* The same of two panels with four columns and more, by granule (16, 32), and for which types that is faster. */
    specdec__pair_function *pair[2];
    uint64_t paired;
    /* Unpacking and dot in one, where that is faster; else NULL. */
    specdec__multiply_function *multiply[SPECDEC__TYPE_COUNT];
    /* Tiles of Q8_0 that lie in planes: the upper ones alone, and both. NULL: tiles are made of them first. */
    specdec__multiply_function *plane, *planes;
    /* Rows as they lie in the file times one column, where that is faster than making tiles of them; else NULL. */
    specdec__rows_function *rows[SPECDEC__TYPE_COUNT];
} specdec__kernels;

/* What an instruction set has to define before it includes >>kernel/lanes: V, a vector of 1, 4 or 16 floats
   (SPECDEC__LANES), and the operations on it, as specdec__ISA_name: name, result, parameters. Each has the bits of the
   scalar one.
   >>kernel/lanes does not compile while one is missing. */
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
    X(highest4, void, (const V *, float *)) /* the same of four times 16 lanes */ \
    X(first_bits, int32_t, (V)) /* the bits of lane 0 */ \
    X(store_low_bytes, void, (int8_t *, V)) /* of the bits of each lane */ \
    X(sum_codes, int32_t, (const int8_t *)) /* of 16 */ \
    X(noise, void, (uint64_t, uint32_t *)) /* bits 63..32 of specdec__noise_at, 64 tokens */ \
    X(load_f16, V, (const void *)) \
    X(load_bf16, V, (const void *)) \
    X(store_f16, void, (void *, V))
