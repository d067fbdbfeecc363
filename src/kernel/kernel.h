/* =====================================================================================================================
 * >>kernel/kernel: the table of functions that each instruction set fills (weight tiles times columns of activations,
 *     and float loops), and the canonical order of their sums.
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

#define SPECDEC__ROWS SPECDEC__TILE_ROWS /* rows of a tile, and lanes of a vector: 16 */
#define SPECDEC__PANEL_VALUES 256        /* values of each row in a panel */
#define SPECDEC__PREFETCH_BYTES 4096     /* distance in bytes at which x86 prefetches weights */
#define SPECDEC__PREFETCH_L1_BYTES 1024  /* distance into the first-level cache, after prefetching into the second */
#define SPECDEC__KEYS 64                 /* keys of an attention block, slots of a page of the cache */

/* The offset in a tile of a block's field, and the bytes of a tile. In a field, units of 4 bytes (see
   specdec__quant_type) are 64 bytes apart, half floats 32 and single bytes 16, as the units of 16 rows lie side by
   side. */
#define SPECDEC__TILE_AT(type, part) (SPECDEC__ROWS * offsetof(specdec__block_##type, part))
#define SPECDEC__TILE_BYTES(type) (SPECDEC__ROWS * sizeof(specdec__block_##type))

/* 16 rows of up to 256 values each, unpacked for the inner loop. The meaning of `codes` and `pair` is private to an
   instruction set. */
typedef struct specdec__panel {
    union {
        int8_t codes[SPECDEC__PANEL_VALUES * SPECDEC__ROWS]; /* (value/4, row, 4) */
        float values[SPECDEC__PANEL_VALUES * SPECDEC__ROWS]; /* (value, row): float types */
        const unsigned char *planes;                   /* a tile of planes: see specdec__tiles */
    } u;
    int32_t pair[SPECDEC__PANEL_VALUES / 16][SPECDEC__ROWS];  /* (granule, row) correction of sums for bias and offset
                                                                 */
    float scale[SPECDEC__PANEL_VALUES / 16][SPECDEC__ROWS];   /* (granule, row) scales of codes */
    float minimum[SPECDEC__PANEL_VALUES / 16][SPECDEC__ROWS]; /* (granule, row) minimums of values */
} specdec__panel;

/* n columns of activations, each with the same number of values, quantised in blocks of 32 values. */
typedef struct specdec__columns {
    int n;           /* columns */
    int8_t *codes;   /* (block, column, 32): quantised values */
    float *scale;    /* (block, column): x = scale * (code + offset) */
    int32_t *pair32; /* (block, column): offset in the low half, sum of 32 codes in the high half */
    int32_t *pair16; /* (block, column, 2): offset in the low half, sum of half a block's codes in the high half */
    float *sum32;    /* (block, column): scale * sum of (code + offset) */
    float *sum16;    /* (block, column, 2): scale * sum of (code + offset) of each half of a block */
    float *values;   /* (column, stride): the unquantised activations, for float weights */
    int stride;      /* floats between columns of values */
} specdec__columns;

/* Unpacks blocks * 32 values of the 16 rows of a tile into a panel. */
typedef void specdec__unpack_function(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                      specdec__panel *panel);
/* Adds a panel of blocks * 32 values times columns [column, column + count), from block `block` on, to sums (count,
   16). */
typedef void specdec__dot_function(const specdec__panel *panel, int blocks, const specdec__columns *x, int block,
                                   int column, int count, float *sums);
/* Adds panel i times columns to sums[i] (count, 16), for two panels. */
typedef void specdec__dot_two_panels_function(const specdec__panel *panels, int blocks, const specdec__columns *x,
                                              int block, int column, int count, float *const *sums);
/* The same values of one or two tiles of a matrix. tile[1] is NULL if there is one. */
typedef struct specdec__tiles {
    const specdec__quant_type *type; /* how the weights are quantised */
    const unsigned char *tile[2];    /* the tiles */
    const unsigned char *next[2]; /* weights that are likely to be multiplied next; any address, only prefetched */
    const unsigned char *planes;  /* a matrix in planes: where its upper planes begin; tile: upper planes of a tile */
    int l1_bytes;                 /* as in specdec__weight_reading; specdec__kernels_multiply sets it */
} specdec__tiles;
/* Adds blocks * 32 values of tile i times columns [column, column + count), from block `block` on, to sums[i] (count,
   16). If that is 0, sums begin at zero. panels: memory for two panels. */
typedef void specdec__multiply_function(const specdec__tiles *tiles, int blocks, specdec__panel *panels,
                                        const specdec__columns *x, int block, int column, int count,
                                        float *const *sums);
/* Computes sums[i] (16): 16 rows of a file, which begin at tile i and are row_bytes apart, of blocks * 32 values (a
   multiple of 512), times a single column. room: memory of the size of tiles of 256 values of 32 rows. */
typedef void specdec__rows_function(const specdec__tiles *tiles, size_t row_bytes, int blocks,
                                    const specdec__columns *x, void *room, float *const *sums);

/* The keys of a block of 64 that a query, or all of several queries, may attend to: [from, to). */
typedef struct specdec__key_range {
    int from, to; /* first key, and the one behind the last: indices in the block */
} specdec__key_range;

/* The softmax of queries over the keys of the blocks so far. */
typedef struct specdec__attention_sums {
    float *highest; /* (query): the largest score; SPECDEC__NO_SCORE: no key yet */
    float *row;     /* (query, width): 16 partial sums of w = exp(score - highest), then the sums of w * value (dim) */
    int width;      /* floats of a query in `row`: 16 + dim */
} specdec__attention_sums;

#define SPECDEC__NO_SCORE -3.0e38f /* stands for the largest score of no keys: below all scores */

/* The arguments of softmax_codes: a block of 64 keys for `count` queries. The scores of the queries become 8-bit
   weights of values, and their softmax is continued. */
typedef struct specdec__softmax_block {
    float *scores;             /* (4, stride, 16): 4 groups of 16 keys, with a row for each query; overwritten */
    const float *value_scales; /* (64): scales of the values; 0 for keys that no query may attend to */
    int stride;                /* rows of `scores` from one group of 16 keys to the next */
    int count;                 /* number of queries */
    const size_t *query;       /* (count): index of each query in sums */
    const specdec__attention_sums *sums; /* of all queries: the largest scores and the sums of weights are updated */
    float *factor;             /* (count): by what the caller has to multiply the query's sums of values so far */
    uint8_t *codes;            /* (count, 64): weight * value_scale / scale, 0 to 255 */
    float *scale;              /* (count): the largest weight * value_scale, over 255 */
} specdec__softmax_block;

/* An update of the state of a recurrent layer's head: matrix (rows, values) *= decay, then matrix += key * change^T,
   where change is rate * value or, in layers that correct themselves, rate * (value - matrix^T * key); then out
   (values) = matrix^T * query. Sums over rows go in order. The gated delta rule (Yang et al. 2024, arXiv 2412.06464)
   and Mamba-2 (Dao and Gu 2024, arXiv 2405.21060) are of this form. */
typedef struct specdec__state_update {
    float *matrix;      /* (rows, values) the state, which is updated in place */
    int rows, values;   /* size of the matrix; values: a multiple of 16 */
    int corrects;       /* 1: the value is reduced by the state's prediction for the key (the delta rule) */
    float decay, rate;  /* factors of the old state and of the new value */
    const float *key;   /* (rows) key of the token */
    const float *query; /* (rows) query of the token; NULL: no output is computed */
    const float *value; /* (values) value of the token */
    float *out;         /* (values) output for the query */
} specdec__state_update;

/* The float loops of an instruction set: name, result, parameters. They are written once for all sets, in
   >>kernel/lanes. */
#define SPECDEC__KERNEL_LOOPS(X, isa) \
    /* Values [from, to) of x * weight / rms(x (length)); x and weight are padded with zeros to a multiple of 16. */ \
    X(isa, norm, void, (const float *x, const float *weight, float epsilon, int length, int from, int to, float *out)) \
    /* Values [from, to) of y * weight / rms(y), where y = x - mean(x). */ \
    X(isa, layer_norm, void, (const float *x, const float *weight, float epsilon, int length, int from, int to, \
                              float *out)) \
    /* Quantises blocks [from, to) of a row of values into column c of `out`. */ \
    X(isa, quantise, void, (const float *row, int from, int to, int c, const specdec__columns *out)) \
    /* x = x * sigmoid(by), elementwise. */ \
    X(isa, sigmoid, void, (float *x, const float *by, int count)) \
    /* x = silu(x) * by, elementwise; silu(x) = x * sigmoid(x). */ \
    X(isa, silu, void, (float *x, const float *by, int count)) \
    /* x = gelu(x) * by, elementwise; GELU in its tanh form. */ \
    X(isa, gelu, void, (float *x, const float *by, int count)) \
    /* x = gelu(x) * by, elementwise; GELU by its definition, with erf. */ \
    X(isa, gelu_exact, void, (float *x, const float *by, int count)) \
    /* x = max(x, 0) * by, elementwise. With by = x, the square of ReLU. */ \
    X(isa, relu, void, (float *x, const float *by, int count)) \
    /* SwiGLU of gpt-oss: x = g sigmoid(1.702 g) (u + 1), where g = min(x, 7) and u is `by` limited to [-7, 7]. */ \
    X(isa, clamped_swiglu, void, (float *x, const float *by, int count)) \
    /* xIELU (Huang and Schlag 2024, arXiv 2411.13010), shape (4): a_p, a_n, beta, epsilon. x > 0: a_p x^2 + beta x; \
       else a_n (e^min(x, epsilon) - 1 - x) + beta x. */ \
    X(isa, xielu, void, (float *x, const float *shape, int count)) \
    /* out = x * cosine + partner * sine, elementwise, in place on x. */ \
    X(isa, rotate, void, (float *x, const float *partner, const float *cosine, const float *sine, int count)) \
    /* scores (count, 64) = queries (count <= 4, dim) times keys (dim, 64), floats or half floats; at least those of \
       the first `slots` keys. Meanwhile prefetches `next`, keys (dim, 64) of two bytes each, bit by bit. */ \
    X(isa, key_scores, void, (const float *queries, int dim, int count, const void *keys, int halves, int slots, \
                          const void *next, float *scores)) \
    /* Raises *max to the largest of scores [from, to) of 64, then replaces these scores by exp(score - *max), the \
       others by 0, and adds the results to sums (16), scaled by exp(old *max - new *max) first. Returns this factor, \
       by which the caller scales its own earlier sums. */ \
    X(isa, softmax, float, (float *scores, int from, int to, float *max, float *sums)) \
    /* out[i] (dim) += the sum over j < valid, in order, of weights[i][j] (count <= 4, 64) * values[j] (64, dim), \
       floats or half floats. Prefetches as many rows of `next`, values (64, dim) of two bytes each. */ \
    X(isa, weigh_values, void, (const float *weights, int count, const void *values, int halves, int valid, int dim, \
                         const void *next, float *const *out)) \
    /* Merges the first `count` queries' sums over later keys (from) into those over earlier keys (into). */ \
    X(isa, merge_sums, void, (const specdec__attention_sums *into, const specdec__attention_sums *from, int count)) \
    /* Joins blocks [from, from + blocks) of a matrix in planes into a tile of Q8_0. whole 0: the lower plane is not \
       read; SPECDEC__PLANE_MIDDLE takes its place. */ \
    X(isa, join_planes, void, (const unsigned char *planes, size_t from, int blocks, int whole, unsigned char *tile)) \
    /* sums (count, 16) += 1e-30 + norms (count, SPECDEC__PLANE_PARTS) times bounds (SPECDEC__PLANE_PARTS, 16), whose \
       parts are `stride` apart. */ \
    X(isa, add_bounds, void, (float *sums, int count, const uint16_t *bounds, size_t stride, const float *norms)) \
    /* out (16) = 16 rows of Q8_0 of `blocks` blocks, as the file has them, times a column, in the canonical order. */ \
    X(isa, multiply_file_rows, void, (const unsigned char *const *rows, int blocks, const specdec__columns *x, \
                                      int column, \
                        float *out)) \
    /* out (count, stride) = sums (count, 16) [+ bias (16)]. */ \
    X(isa, store_sums, void, (const float *sums, int count, const float *bias, float *out, size_t stride)) \
    /* x = a * x, elementwise. */ \
    X(isa, scale, void, (float *x, float a, int count)) \
    /* out (count, a multiple of 16) = the sum over taps, in order, of weights (taps, stride) * rows[tap], [+ bias], \
       elementwise; silu: then silu(out). */ \
    X(isa, convolve, void, (const float *const *rows, const float *weights, size_t stride, int taps, \
                            const float *bias, int silu, int count, float *out)) \
    /* An update of the state of a recurrent layer's head: see specdec__state_update. */ \
    X(isa, update_state, void, (const specdec__state_update *r)) \
    /* x += a * y, elementwise. */ \
    X(isa, add_scaled, void, (float *x, float a, const float *y, int count)) \
    /* x = cap * tanh(x / cap). */ \
    X(isa, soft_cap, void, (float *x, float cap, int count)) \
    /* The sum of x (16), by the canonical tree. */ \
    X(isa, sum16, float, (const float *x)) \
    /* Whether x (count, a multiple of 16) times factor are all finite numbers. */ \
    X(isa, all_finite, int, (const float *x, float factor, int count)) \
    /* Converts half floats to floats, and floats to half floats. */ \
    X(isa, f16_to_float, void, (const void *in, int count, float *out)) \
    X(isa, float_to_f16, void, (const float *in, int count, void *out)) \
    /* Quantises values (count, a multiple of 32) to codes in [-127, 127]. Returns the scale: the largest magnitude \
       over 127. */ \
    X(isa, float_to_codes, float, (const float *values, int count, int8_t *codes)) \
    /* Softmax of several queries over a block of keys, with 8-bit weights: see specdec__softmax_block. */ \
    X(isa, softmax_codes, void, (const specdec__softmax_block *s)) \
    /* largest (groups) = the largest of each group of 64 numbers of x (groups, 64). Returns whether all of them are \
       below 1e30 in magnitude, and none is NaN. */ \
    X(isa, find_largest, int, (const float *x, int groups, float *largest)) \
    /* The largest of x (count > 0); NaNs are ignored; -infinity if all are NaN. */ \
    X(isa, largest, float, (const float *x, int count)) \
    /* Counts tokens from the first one on (all `count`, or a multiple of 64) whose (logit - best) * inverse plus \
       Gumbel noise stays below `wanted`; inverse > 0. The first logit is that of token `first`; its noise is in row \
       noise_row. The result may be too small, never too large. */ \
    X(isa, count_unreachable, int, (const float *logits, int count, float best, float inverse, float wanted, \
                          uint64_t noise_row, uint32_t first)) \
    /* p (count) = exp((logit - best) / temperature); 0 where that is below e^-87. */ \
    X(isa, token_weights, void, (const float *logits, int count, float best, float temperature, float *p)) \
    /* sums[i % 16] += e^(logit[i] - best); where logit[i] - best > least, sums[16 + i % 16], too. */ \
    X(isa, add_weights, void, (const float *logits, int count, float best, float least, double *sums)) \
    /* residuals[i % 16] += max(target[i] - (high + low) * draft[i] - uniform, 0); weights[i % 16] += draft[i]. high \
       and low are floats, so that both products are exact in double. */ \
    X(isa, add_residuals, void, (const float *target, const float *draft, int count, double high, double low, \
                             double uniform, double *residuals, double *weights))

/* Activation functions of feed-forward layers: indices of specdec__kernels.activate. */
enum {
    SPECDEC__SILU, SPECDEC__GELU, SPECDEC__GELU_EXACT, SPECDEC__RELU, SPECDEC__CLAMPED_SWIGLU, SPECDEC__XIELU,
    SPECDEC__ACTIVATIONS
};

/* The type of each float loop, and its member of specdec__kernels. */
#define SPECDEC__KERNEL_TYPE(isa, name, result, parameters) typedef result specdec__##name##_function parameters;
#define SPECDEC__KERNEL_MEMBER(isa, name, result, parameters) specdec__##name##_function *name;
SPECDEC__KERNEL_LOOPS(SPECDEC__KERNEL_TYPE, )

/* Adds scales[i] * the exact sum over keys of codes (count <= 64, 64) * values to out[i] (dim). values: 8-bit codes
   (dim/16, 64/4, 16, 4), so that 4 keys of a dimension lie together; dim: a multiple of 32. Codes are zeros from key
   `keys` (a multiple of 16) on. count is rounded up to a multiple of 4: the caller provides codes, scales of 0 and rows
   of out for these, which may all be the same row and do not change. Meanwhile prefetches `next`, a page of keys and
   values, unless NULL. */
typedef void specdec__weigh_codes_function(const int8_t *values, int dim, int keys, const uint8_t *codes,
                                           const float *scales, int count, const unsigned char *next,
                                           float *const *out);

/* How the weights of two tiles are read from memory while few columns are multiplied. */
typedef struct specdec__weight_reading {
    int one_tile; /* 1: one tile after the other; 0: two tiles side by side */
    int l1_bytes; /* distance in bytes of prefetches into the first-level cache; 0: the default */
} specdec__weight_reading;

/* The table of an instruction set's functions, which give the same bits in every table. An entry for types is NULL if
   no type has that number; in multiply and rows, also if it would not be faster. */
typedef struct specdec__kernels {
    const char *name;                      /* name of the instruction set */
    specdec__weight_reading reading;       /* how weights are read */
    specdec__weight_reading other_reading; /* may be faster on some machines; all 0: there is no other one */
    specdec__interleave_function *interleave;   /* makes tiles: specdec__quant_interleave, or a faster function */
    specdec__weigh_codes_function *weigh_codes; /* attention over values of 8 bits */
    SPECDEC__KERNEL_LOOPS(SPECDEC__KERNEL_MEMBER, )
    int half_queries; /* up to this many queries, key_scores and weigh_values take half floats */
    specdec__silu_function *activate[SPECDEC__ACTIVATIONS];    /* activation functions, by SPECDEC__SILU and so on */
    specdec__unpack_function *unpack[SPECDEC__TYPE_COUNT];     /* by type: unpacks a tile into a panel */
    specdec__dot_function *dot[SPECDEC__TYPE_COUNT];           /* by type: multiplies a panel by columns */
    specdec__dot_two_panels_function *dot_two_panels[2];       /* by granule (16, 32): dot for two panels, 4 columns or
                                                                  more */
    uint64_t two_panel_types;                                  /* a bit for each type where dot_two_panels is faster */
    specdec__multiply_function *multiply[SPECDEC__TYPE_COUNT]; /* unpacks and multiplies in one, where that is faster */
    specdec__multiply_function *multiply_upper_plane;          /* for Q8_0 in planes, the upper plane alone; NULL: none
                                                                  */
    specdec__multiply_function *multiply_planes;               /* for Q8_0 in planes, both; NULL: planes are joined
                                                                  first */
    specdec__rows_function *rows[SPECDEC__TYPE_COUNT];         /* multiplies rows as the file has them, where faster */
} specdec__kernels;

/* The operations that an instruction set defines before it includes >>kernel/lanes: name, result, parameters of
   specdec__ISA_name. V is a vector of 1, 4 or 16 floats (SPECDEC__LANES). Each has the bits of the scalar one.
   >>kernel/lanes does not compile if one is missing. */
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
    X(times_power_of_2, V, (V, V)) /* a * 2^n; the second parameter is n + 1.5 * 2^23 */ \
    X(sum, float, (const V *)) /* of 16 lanes, by the canonical tree: i and i + 8, then i + 4, i + 2, i + 1 */ \
    X(largest_lane, float, (const V *)) /* the largest of 16 lanes */ \
    X(largest_lanes_of_four, void, (const V *, float *)) /* the largest of 16 lanes, four times */ \
    X(bits_of_lane_0, int32_t, (V)) /* the bits of lane 0 */ \
    X(store_low_bytes, void, (int8_t *, V)) /* the lowest byte of the bits of each lane */ \
    X(sum_codes, int32_t, (const int8_t *)) /* the sum of 16 codes */ \
    X(compute_noise_bits, void, (uint64_t, uint32_t *)) /* upper halves of noise_bits_of_token for 64 tokens */ \
    X(load_f16, V, (const void *)) /* converts half floats */ \
    X(load_bf16, V, (const void *)) /* converts bfloat16 */ \
    X(store_f16, void, (void *, V)) /* rounds to half floats */
