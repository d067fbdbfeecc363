/* =====================================================================================================================
 * >>kernel/lanes: float loops over 16 lanes, written once and included for each instruction set (SPECDEC__ISA). V is
 *     the set's vector of SPECDEC__LANES floats; X(name) is one of its functions.
 *
 * Lanes are different rows, keys or dimensions. Where they are parts of a single sum (norm, softmax), 16 strided
 * partial sums are added by the canonical tree. So every instruction set gives the same bits.
 * ================================================================================================================== */

#ifndef SPECDEC__ISA /* alone: as the scalar reference includes it, parts only */
#include "scalar.h"
#else /* parts only */

#pragma push_macro("V")
#pragma push_macro("X")
#undef V
#undef X
#define V SPECDEC__PASTE(SPECDEC__ISA, v)
#define X(name) SPECDEC__PASTE(SPECDEC__ISA, name)
/* Checks at compile time that an instruction set defines all SPECDEC__LANE_OPERATIONS, with their types. */
#define SPECDEC__LANE_OPERATION(name, result, parameters) + sizeof(0 ? X(name) : (result (*) parameters)0)
enum { X(operations) = 0 SPECDEC__LANE_OPERATIONS(SPECDEC__LANE_OPERATION, V) };
#undef SPECDEC__LANE_OPERATION

#define SPECDEC__LANE SPECDEC__TARGET static
#define SPECDEC__LANE_INLINE SPECDEC__TARGET SPECDEC__INLINE
#define SPECDEC__PARTS (16 / SPECDEC__LANES) /* vectors that make 16 lanes */
#define SPECDEC__ROWS_AT_ONCE (SPECDEC__PARTS < SPECDEC__WIDTH ? SPECDEC__PARTS : SPECDEC__WIDTH)
#if SPECDEC__LANES < 16 /* without fused multiply-adds: long functions are not inlined, and queries are taken singly */
#define SPECDEC__LANE_LONG_FUNCTION SPECDEC__TARGET static __attribute__((noinline))
#define SPECDEC__QUERIES_AT_ONCE 1 /* queries that share one pass over keys and values */
#define SPECDEC__UNROLL_PARTS
#else
#define SPECDEC__LANE_LONG_FUNCTION SPECDEC__LANE_INLINE
#define SPECDEC__QUERIES_AT_ONCE 4
#define SPECDEC__UNROLL_PARTS SPECDEC__UNROLL
#endif

/* e^x as specdec__exp, for x <= 88; below -87 the result stays at e^-87. */
SPECDEC__LANE_LONG_FUNCTION V X(exp)(V x)
{
    V shifter, n, r, p;

    x = X(min)(X(max)(x, X(set)(-87.0f)), X(set)(88.0f));
    SPECDEC__EXP(x, shifter, n, r, p, X(madd), X(set), X(sub));
    return X(times_power_of_2)(p, shifter);
}

/* Values [from, to) of x * weight / sqrt(mean of x^2 over `length` values + epsilon). */
SPECDEC__LANE void X(norm)(const float *x, const float *weight, float epsilon, int length, int from, int to, float *out)
{
    V sums[SPECDEC__PARTS], scale;
    int i, p;

    for (p = 0; p < SPECDEC__PARTS; p++) {
        sums[p] = X(set)(0);
        for (i = p * SPECDEC__LANES; i < length; i += 16)
            sums[p] = X(madd)(X(load)(x + i), X(load)(x + i), sums[p]);
    }
    scale = X(set)((float)specdec__inverse_square_root((double)X(sum)(sums) / (double)length + (double)epsilon));
    for (i = from; i < to; i += SPECDEC__LANES)
        X(store)(out + i, X(mul)(X(mul)(X(load)(x + i), scale), X(load)(weight + i)));
}

/* Values [from, to) of the layer norm of x: as norm, of x minus its mean. The padding with zeros adds to the sum of
   squares; that is subtracted again. */
SPECDEC__LANE void X(layer_norm)(const float *x, const float *weight, float epsilon, int length, int from, int to,
                                 float *out)
{
    V sums[SPECDEC__PARTS], squares[SPECDEC__PARTS], mean, scale;
    double average, padding = (16 - length % 16) % 16;
    int i, p;

    for (p = 0; p < SPECDEC__PARTS; p++) {
        sums[p] = squares[p] = X(set)(0);
        for (i = p * SPECDEC__LANES; i < length; i += 16)
            sums[p] = X(add)(X(load)(x + i), sums[p]);
    }
    mean = X(set)((float)((double)X(sum)(sums) / (double)length));
    for (p = 0; p < SPECDEC__PARTS; p++)
        for (i = p * SPECDEC__LANES; i < length; i += 16) {
            const V off = X(sub)(X(load)(x + i), mean);

            squares[p] = X(madd)(off, off, squares[p]);
        }
    average = (double)(float)((double)X(sum)(sums) / (double)length);
    average = ((double)X(sum)(squares) - specdec__product(specdec__product(average, average), padding)) /
              (double)length;
    scale = X(set)((float)specdec__inverse_square_root((average > 0 ? average : 0) + (double)epsilon));
    for (i = from; i < to; i += SPECDEC__LANES)
        X(store)(out + i, X(mul)(X(mul)(X(sub)(X(load)(x + i), mean), scale), X(load)(weight + i)));
}

/* For 16 blocks of 32 values: the offsets of their code windows, their scales, and the inverses of the scales (0 for a
   scale too small to divide by), from the largest values above 0 (high) and below 0 (low). */
SPECDEC__VECTORISE SPECDEC__LANE void X(code_windows)(const float *high, const float *low, int32_t *offset,
                                                      float *scale, float *inverse)
{
    int i;

    for (i = 0; i < 16; i++) {
        float share = low[i] / (high[i] + low[i]), above, below;
        int32_t level;

        share = share > 0 ? share * 16 : 0; /* all zeros give NaN */
        level = (int32_t)(share < 15 ? share : 15);
        offset[i] = 120 - 16 * level;
        above = high[i] * (1.0f / (float)(247 - 16 * level)); /* over the number of codes above 0 in the window */
        below = low[i] * (1.0f / (float)(7 + 16 * level));    /* and below 0 */
        scale[i] = above > below ? above : below;
        inverse[i] = 1.0f / scale[i];
        inverse[i] = inverse[i] < 1e38f ? inverse[i] : 0;
    }
}

/* Quantises a block of 32 values: x = scale * (code + offset), code in [-127, 127]. The window of 255 codes covers the
   range of the values, in one of 16 positions: offset = 120 - 16 * level. at: the index (block, column) in `out`. */
SPECDEC__LANE_INLINE void X(quantise_block)(const float *row, int32_t offset, float scale, float inverse, size_t at,
                                            const specdec__columns *out)
{
    const V magic = X(set)(12582912.0f), inverses = X(set)(inverse), base = X(set)(12582912.0f + (float)offset);
    const V least = X(set)(12582912.0f - 127);
    int8_t *codes = out->codes + at * 32;
    int32_t half0, half1;
    int i;

    /* The code is the low byte of (x/scale rounded, plus magic) - (magic + offset), an exact integer. NaNs get the
       lowest code. */
    SPECDEC__UNROLL_PARTS
    for (i = 0; i < 32; i += SPECDEC__LANES) {
        const V code = X(add)(X(sub)(X(madd)(X(load)(row + i), inverses, magic), base), magic);

        X(store_low_bytes)(codes + i, X(max)(code, least));
    }
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

/* The largest value above 0 and below 0 among 32 values; NaNs are ignored. */
SPECDEC__LANE_INLINE void X(value_extent)(const float *values, float *high, float *low)
{
    const V zero = X(set)(0);
    V highs[SPECDEC__PARTS], lows[SPECDEC__PARTS];
    int p;

    for (p = 0; p < SPECDEC__PARTS; p++) {
        V x0 = X(load)(values + p * SPECDEC__LANES), x1 = X(load)(values + 16 + p * SPECDEC__LANES);

        highs[p] = X(max)(x0, X(max)(x1, zero));
        lows[p] = X(max)(X(sub)(zero, x0), X(max)(X(sub)(zero, x1), zero));
    }
    *high = X(largest_lane)(highs);
    *low = X(largest_lane)(lows);
}

/* Quantises blocks [from, to) of 32 values of a row into column c. */
SPECDEC__LANE void X(quantise)(const float *row, int from, int to, int c, const specdec__columns *out)
{
    float high[16] = {0}, low[16] = {0}, scale[16], inverse[16];
    int32_t offset[16];
    int i, count;

    for (; from < to; from += count) {
        count = specdec__min_int(16, to - from);
        for (i = 0; i < count; i++)
            X(value_extent)(row + (from + i) * 32, &high[i], &low[i]);
        X(code_windows)(high, low, offset, scale, inverse);
        for (i = 0; i < count; i++)
            X(quantise_block)(row + (from + i) * 32, offset[i], scale[i], inverse[i],
                              (size_t)(from + i) * (size_t)out->n + (size_t)c, out);
    }
}

/* x / (1 + e^y) */
SPECDEC__LANE_INLINE V X(times_sigmoid)(V x, V y) { return X(div)(x, X(add)(X(set)(1), X(exp)(y))); }

/* x = x / (1 + e^-by), elementwise. */
SPECDEC__LANE void X(sigmoid)(float *x, const float *by, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store)(x + i, X(times_sigmoid)(X(load)(x + i), X(sub)(X(set)(0), X(load)(by + i))));
}

/* x = x / (1 + e^-x) * by, elementwise. */
SPECDEC__LANE void X(silu)(float *x, const float *by, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES) {
        V v = X(load)(x + i);

        X(store)(x + i, X(mul)(X(times_sigmoid)(v, X(sub)(X(set)(0), v)), X(load)(by + i)));
    }
}

/* x = gelu(x) * by, elementwise. GELU in its tanh form, x/2 (1 + tanh(sqrt(2/pi) (x + .044715 x^3))), computed as x /
   (1 + e^(-2 sqrt(2/pi) (x + .044715 x^3))). */
SPECDEC__LANE void X(gelu)(float *x, const float *by, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES) {
        V v = X(load)(x + i), cubic = X(madd)(X(mul)(v, v), X(set)(-0.0713548163f), X(set)(-1.59576912f));

        X(store)(x + i, X(mul)(X(times_sigmoid)(v, X(mul)(v, cubic)), X(load)(by + i)));
    }
}

/* x = gelu(x) * by, elementwise. GELU by its definition, x/2 (1 + erf(x / sqrt 2)), computed as max(x, 0) - |x|/2
   erfc(|x| / sqrt 2), to 2e-7 (Abramowitz and Stegun 1964, 7.1.26). */
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

/* x = max(x, 0) * by, elementwise. */
SPECDEC__LANE void X(relu)(float *x, const float *by, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store)(x + i, X(mul)(X(max)(X(load)(x + i), X(set)(0)), X(load)(by + i)));
}

/* SwiGLU of gpt-oss: x = g / (1 + e^(-1.702 g)) * (u + 1), where g = min(x, 7) and u = min(max(by, -7), 7). */
SPECDEC__LANE void X(clamped_swiglu)(float *x, const float *by, int count)
{
    const V most = X(set)(7);
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES) {
        const V g = X(min)(X(load)(x + i), most), u = X(min)(X(max)(X(load)(by + i), X(set)(-7)), most);

        X(store)(x + i, X(mul)(X(times_sigmoid)(g, X(mul)(g, X(set)(-1.702f))), X(add)(u, X(set)(1))));
    }
}

/* xIELU: computes both branches; the branch that does not apply is multiplied by 0. */
SPECDEC__LANE void X(xielu)(float *x, const float *shape, int count)
{
    const V up = X(set)(shape[0]), down = X(set)(shape[1]), slope = X(set)(shape[2]), low = X(set)(shape[3]);
    const V zero = X(set)(0), one = X(set)(1);
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES) {
        const V v = X(load)(x + i), linear = X(mul)(slope, v);
        const V positive = X(min)(X(max)(X(mul)(v, X(set)(1e38f)), zero), one); /* 1 or 0 */
        const V below = X(min)(v, zero), above = X(max)(v, zero);
        const V power = X(sub)(X(exp)(X(min)(below, low)), one);

        X(store)(x + i, X(madd)(positive, X(mul)(X(mul)(up, above), above),
                                X(madd)(X(sub)(one, positive), X(mul)(down, X(sub)(power, below)), linear)));
    }
}

/* x = x * cosine + partner * sine, elementwise. */
SPECDEC__LANE void X(rotate)(float *x, const float *partner, const float *cosine, const float *sine, int count)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store)(x + i, X(madd)(X(load)(x + i), X(load)(cosine + i), X(mul)(X(load)(partner + i), X(load)(sine + i))));
}

/* acc (count, chunks) += weights[c * stride] * row, for `count` sums. row: `chunks` vectors of floats or half
   floats. */
SPECDEC__LANE_INLINE void X(add_row)(V (*acc)[SPECDEC__WIDTH], const float *weights, int stride, const void *row,
                                     int halves, int count, int chunks)
{
    V v[SPECDEC__WIDTH];
    int c, i;

    SPECDEC__UNROLL
    for (i = 0; i < chunks; i++)
        v[i] = halves ? X(load_f16)((const uint16_t *)row + i * SPECDEC__LANES)
                      : X(load)((const float *)row + i * SPECDEC__LANES);
    SPECDEC__UNROLL
    for (c = 0; c < count; c++) {
        V w = X(set)(weights[c * stride]);

        SPECDEC__UNROLL
        for (i = 0; i < chunks; i++)
            acc[c][i] = X(madd)(w, v[i], acc[c][i]);
    }
}

#if SPECDEC__LANES < 16
/* Unpacks floats of a tile into a panel. */
SPECDEC__LANE void X(unpack_f32)(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                 specdec__panel *panel)
{
    int i;

    (void)type;
    for (i = 0; i < blocks * 32 * SPECDEC__ROWS; i++)
        panel->u.values[i] = specdec__load_f32(tile + i * 4);
}

/* Unpacks half floats of a tile into a panel. */
SPECDEC__LANE void X(unpack_f16)(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                 specdec__panel *panel)
{
    int i;

    (void)type;
    for (i = 0; i < blocks * 32 * SPECDEC__ROWS; i += SPECDEC__LANES)
        X(store)(panel->u.values + i, X(load_f16)(tile + i * 2));
}

/* Unpacks bfloat16 of a tile into a panel. */
SPECDEC__LANE void X(unpack_bf16)(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                  specdec__panel *panel)
{
    int i;

    (void)type;
    for (i = 0; i < blocks * 32 * SPECDEC__ROWS; i += SPECDEC__LANES)
        X(store)(panel->u.values + i, X(load_bf16)(tile + i * 2));
}

/* sums (column, 16) += a panel of floats times `count` columns, SPECDEC__ROWS_AT_ONCE vectors of the 16 rows at a
   time. */
SPECDEC__LANE void X(dot_float)(const specdec__panel *panel, int blocks, const specdec__columns *x, int block,
                                int column, int count, float *sums)
{
    const float *values = x->values + (size_t)column * (size_t)x->stride + (size_t)block * 32;
    V acc[1][SPECDEC__WIDTH];
    int p, i, r;

    for (; count; count--, values += x->stride, sums += 16)
        for (p = 0; p < 16; p += SPECDEC__LANES * SPECDEC__ROWS_AT_ONCE) {
            SPECDEC__UNROLL
            for (r = 0; r < SPECDEC__ROWS_AT_ONCE; r++)
                acc[0][r] = X(load)(sums + p + r * SPECDEC__LANES);
            for (i = 0; i < blocks * 32; i++)
                X(add_row)(acc, values + i, 0, panel->u.values + i * 16 + p, 0, 1, SPECDEC__ROWS_AT_ONCE);
            SPECDEC__UNROLL
            for (r = 0; r < SPECDEC__ROWS_AT_ONCE; r++)
                X(store)(sums + p + r * SPECDEC__LANES, acc[0][r]);
        }
}

#else
/* Loads value i of the 16 rows of a tile of floats, half floats or bfloat16. */
SPECDEC__LANE_INLINE V X(load_tile_value)(int type, const unsigned char *tile, int i)
{
    return type == SPECDEC__TYPE_F16    ? X(load_f16)(tile + i * 32)
           : type == SPECDEC__TYPE_BF16 ? X(load_bf16)(tile + i * 32)
                                        : X(load)((const float *)(const void *)(tile + i * 64));
}

/* The prefetches of a pass over some values of float tiles: `step` bytes for each value, beginning `ahead` bytes behind
   it. All passes over the same values together prefetch the next values. */
typedef struct X(prefetch_pass) {
    size_t ahead, step;
} X(prefetch_pass);

/* sums[t] (column, 16) += values (value, 16) of tile t * x (column, value), for `tiles` tiles and `columns` columns at
   once. last: index of the last column; further columns repeat it. */
SPECDEC__LANE_INLINE void X(multiply_values)(int type, const unsigned char *const *tile, size_t at, int values,
                                             const float *x, int stride, float *const *sums, int column, int tiles,
                                             int columns, int last, X(prefetch_pass) pass)
{
    const unsigned char *from[2];
    const float *row[4];
    size_t place[4];
    V acc[2][4], v[2];
    int i, c, t;

    SPECDEC__UNROLL
    for (c = 0; c < columns; c++) {
        place[c] = (size_t)specdec__min_int(column + c, last);
        row[c] = x + place[c] * (size_t)stride;
    }
    SPECDEC__UNROLL
    for (t = 0; t < tiles; t++) {
        from[t] = tile[t] + at;
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            acc[t][c] = X(load)(sums[t] + place[c] * 16);
    }
    for (i = 0; i < values; i++, pass.ahead += pass.step) {
        SPECDEC__UNROLL
        for (t = 0; t < tiles; t++) {
            v[t] = X(load_tile_value)(type, from[t], i);
            __builtin_prefetch(from[t] + pass.ahead, 0, 3);
        }
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            const V w = X(set)(row[c][i]);

            SPECDEC__UNROLL
            for (t = 0; t < tiles; t++)
                acc[t][c] = X(madd)(w, v[t], acc[t][c]);
        }
    }
    SPECDEC__UNROLL
    for (t = 0; t < tiles; t++)
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            X(store)(sums[t] + place[c] * 16, acc[t][c]);
}

/* specdec__multiply_function for tiles of floats: takes as many values at a time as stay in the first-level cache until
   all columns are multiplied. */
SPECDEC__LANE_INLINE void X(multiply_floats)(int type, const specdec__tiles *tiles, int blocks,
                                             const specdec__columns *x, int block, int column, int count,
                                             float *const *sums)
{
    const int both = tiles->tile[1] != NULL;
    const int bytes = type == SPECDEC__TYPE_F32 ? 64 : 32, most = 8192 / bytes;
    const int few = SPECDEC__WIDTH > 1 ? 1 : 2; /* remaining columns up to this number are taken singly */
    int from, run, t, c, n;

    for (t = 0; t <= both && !block; t++)
        memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
    for (from = 0; from < blocks * 32; from += run) {
        const float *values = x->values + (size_t)column * (size_t)x->stride + (size_t)block * 32 + (size_t)from;
        const size_t at = (size_t)from * (size_t)bytes;
        X(prefetch_pass) pass;

        run = specdec__min_int(most, blocks * 32 - from);
        pass.ahead = (size_t)run * (size_t)bytes;
        pass.step = (size_t)bytes / (size_t)(count / 4 + (count % 4 > few ? 1 : count % 4));
        for (c = 0; c < count; c += n, pass.ahead += (size_t)run * pass.step) {
            n = c + few < count && (SPECDEC__WIDTH == 1 || both) ? 4 : 1;
            if (n == 1 && both)
                X(multiply_values)(type, tiles->tile, at, run, values, x->stride, sums, c, 2, 1, c, pass);
            else if (n == 1)
                X(multiply_values)(type, tiles->tile, at, run, values, x->stride, sums, c, 1, 1, c, pass);
            else if (SPECDEC__WIDTH > 1)
                X(multiply_values)(type, tiles->tile, at, run, values, x->stride, sums, c, 2, 4, count - 1, pass);
            else
                for (t = 0; t <= both; t++)
                    X(multiply_values)(type, tiles->tile + t, at, run, values, x->stride, sums + t, c, 1, 4, count - 1,
                                       pass);
        }
    }
}

#define SPECDEC__MULTIPLY_FLOATS(name, type) \
    /* specdec__multiply_function for a float type. */ \
    SPECDEC__LANE void X(name)(const specdec__tiles *tiles, int blocks, specdec__panel *panels, \
                               const specdec__columns *x, int block, int column, int count, float *const *sums) \
    { \
        (void)panels; \
        X(multiply_floats)(type, tiles, blocks, x, block, column, count, sums); \
    }
SPECDEC__MULTIPLY_FLOATS(multiply_f32, SPECDEC__TYPE_F32)
SPECDEC__MULTIPLY_FLOATS(multiply_f16, SPECDEC__TYPE_F16)
SPECDEC__MULTIPLY_FLOATS(multiply_bf16, SPECDEC__TYPE_BF16)
#undef SPECDEC__MULTIPLY_FLOATS
#endif

/* Prefetches SPECDEC__WIDTH vectors of two-byte values from `next`. Does nothing for instruction sets where multiplying
   takes longer than reading. */
SPECDEC__LANE_INLINE void X(prefetch_chunk)(const void *next, int at)
{
    int i;

    for (i = 0; SPECDEC__QUERIES_AT_ONCE > 1 && i < SPECDEC__WIDTH; i += 2)
        __builtin_prefetch((const char *)next + 2 * (at + i * 16), 0, 3);
}

/* The address of element i of floats or half floats. */
SPECDEC__LANE_INLINE const void *X(element_at)(const void *values, int halves, int i)
{
    return (const char *)values + (size_t)i * (halves ? 2 : 4);
}

/* scores (query, key) = the sum over dimensions, in order, of query * key. Lanes are keys; a pass takes SPECDEC__WIDTH
   vectors. */
SPECDEC__LANE_INLINE void X(scores_of_queries)(const float *queries, int dim, const void *keys, int halves, int slots,
                                               const void *next, float *scores, int count)
{
    V acc[4][SPECDEC__WIDTH];
    int from, c, d, i;

    for (from = 0; from < slots; from += SPECDEC__LANES * SPECDEC__WIDTH) {
        SPECDEC__UNROLL
        for (c = 0; c < count; c++)
            SPECDEC__UNROLL
            for (i = 0; i < SPECDEC__WIDTH; i++)
                acc[c][i] = X(set)(0);
        for (d = 0; d < dim; d++) {
            X(prefetch_chunk)(next, d * SPECDEC__KEYS + from);
            X(add_row)(acc, queries + d, dim, X(element_at)(keys, halves, d * SPECDEC__KEYS + from), halves, count,
                       SPECDEC__WIDTH);
        }
        SPECDEC__UNROLL
        for (c = 0; c < count; c++)
            SPECDEC__UNROLL
            for (i = 0; i < SPECDEC__WIDTH; i++)
                X(store)(scores + c * SPECDEC__KEYS + from + i * SPECDEC__LANES, acc[c][i]);
    }
}

/* scores (count, 64) = queries (count <= 4, dim) times keys (dim, 64), for at least the first `slots` keys. */
SPECDEC__LANE_INLINE void X(scores_by_count)(const float *queries, int dim, int count, const void *keys, int halves,
                                             int slots, const void *next, float *scores)
{
    int some;

    for (; count; count -= some, queries += some * dim, scores += some * SPECDEC__KEYS) {
        some = count >= SPECDEC__QUERIES_AT_ONCE ? SPECDEC__QUERIES_AT_ONCE : 1;
        if (SPECDEC__QUERIES_AT_ONCE > 1 && some > 1)
            X(scores_of_queries)(queries, dim, keys, halves, slots, next, scores, SPECDEC__QUERIES_AT_ONCE);
        else
            X(scores_of_queries)(queries, dim, keys, halves, slots, next, scores, 1);
    }
}

enum { X(half_queries) = SPECDEC__QUERIES_AT_ONCE > 1 ? 4 * SPECDEC__QUERIES_AT_ONCE : 0 };

/* X(scores_by_count), compiled for floats and for half floats. */
SPECDEC__LANE void X(key_scores)(const float *queries, int dim, int count, const void *keys, int halves, int slots,
                                 const void *next, float *scores)
{
    if (X(half_queries) > 0 && halves)
        X(scores_by_count)(queries, dim, count, keys, 1, slots, next, scores);
    else
        X(scores_by_count)(queries, dim, count, keys, 0, slots, next, scores);
}

/* Sets all scores (64) outside [from, to) to a value. */
SPECDEC__LANE_INLINE void X(fill_outside)(float *scores, int from, int to, float value)
{
    int i;

    for (i = 0; i < from; i++)
        scores[i] = value;
    for (i = to; i < SPECDEC__KEYS; i++)
        scores[i] = value;
}

/* Raises *max to the largest of scores [from, to) of 64, replaces these scores by exp(score - *max) and the others by
   0, and adds the results to sums (16), scaled by exp(old *max - new *max) first. Returns this factor. */
SPECDEC__LANE float X(softmax)(float *scores, int from, int to, float *max, float *sums)
{
    V part[SPECDEC__PARTS], highest;
    float grown, factor = 1;
    int i, p;

    X(fill_outside)(scores, from, to, SPECDEC__NO_SCORE);
    for (p = 0; p < SPECDEC__PARTS; p++) {
        const float *at = scores + p * SPECDEC__LANES;

        part[p] = X(max)(X(max)(X(load)(at), X(load)(at + 16)), X(max)(X(load)(at + 32), X(load)(at + 48)));
    }
    grown = X(largest_lane)(part);
    if (grown > *max) {
        factor = specdec__float_from_bits((uint32_t)X(bits_of_lane_0)(X(exp)(X(set)(*max - grown))));
        *max = grown;
    }
    highest = X(set)(*max);
    for (i = from / SPECDEC__LANES * SPECDEC__LANES; i < to; i += SPECDEC__LANES)
        X(store)(scores + i, X(exp)(X(sub)(X(load)(scores + i), highest)));
    X(fill_outside)(scores, from, to, 0);
    for (p = 0; p < 16; p += SPECDEC__LANES) {
        V total = X(mul)(X(load)(sums + p), X(set)(factor));

        for (i = p; i < SPECDEC__KEYS; i += 16)
            total = X(add)(total, X(load)(scores + i));
        X(store)(sums + p, total);
    }
    return factor;
}

/* out (query, `chunks` vectors from dimension d on) += the sum over keys, in order, of weight * value. Lanes are
   dimensions. */
SPECDEC__LANE_INLINE void X(weigh_values_chunk)(const float *weights, const void *values, int halves, int valid,
                                                int dim, const void *next, float *const *out, int d, int count,
                                                int chunks)
{
    V acc[4][SPECDEC__WIDTH];
    int c, i, j;

    SPECDEC__UNROLL
    for (c = 0; c < count; c++)
        SPECDEC__UNROLL
        for (i = 0; i < chunks; i++)
            acc[c][i] = X(load)(out[c] + d + i * SPECDEC__LANES);
    for (j = 0; j < valid; j++) {
        X(prefetch_chunk)(next, j * dim + d);
        X(add_row)(acc, weights + j, SPECDEC__KEYS, X(element_at)(values, halves, j * dim + d), halves, count, chunks);
    }
    SPECDEC__UNROLL
    for (c = 0; c < count; c++)
        SPECDEC__UNROLL
        for (i = 0; i < chunks; i++)
            X(store)(out[c] + d + i * SPECDEC__LANES, acc[c][i]);
}

/* out[i] (dim) += the sum over j < valid, in order, of weights (count <= 4, 64) * values (64, dim). */
SPECDEC__LANE_INLINE void X(weigh_values_by_count)(const float *weights, int count, const void *values, int halves,
                                                   int valid, int dim, const void *next, float *const *out)
{
    int d = 0, c;

    for (; d + SPECDEC__LANES * SPECDEC__WIDTH <= dim; d += SPECDEC__LANES * SPECDEC__WIDTH) {
        if (SPECDEC__QUERIES_AT_ONCE > 1 && count == SPECDEC__QUERIES_AT_ONCE)
            X(weigh_values_chunk)(weights, values, halves, valid, dim, next, out, d, SPECDEC__QUERIES_AT_ONCE,
                                  SPECDEC__WIDTH);
        else
            for (c = 0; c < count; c++)
                X(weigh_values_chunk)(weights + c * SPECDEC__KEYS, values, halves, valid, dim, next, out + c, d, 1,
                                      SPECDEC__WIDTH);
    }
    for (; SPECDEC__WIDTH > 1 && d < dim; d += 16)
        for (c = 0; c < count; c++)
            X(weigh_values_chunk)(weights + c * SPECDEC__KEYS, values, halves, valid, dim, next, out + c, d, 1, 1);
}

/* X(weigh_values_by_count), compiled for floats and for half floats. */
SPECDEC__LANE void X(weigh_values)(const float *weights, int count, const void *values, int halves, int valid, int dim,
                                   const void *next, float *const *out)
{
    if (X(half_queries) > 0 && halves)
        X(weigh_values_by_count)(weights, count, values, 1, valid, dim, next, out);
    else
        X(weigh_values_by_count)(weights, count, values, 0, valid, dim, next, out);
}

/* Merges the sums of the first `count` queries over later keys (from) into their sums over earlier keys (into). */
SPECDEC__LANE void X(merge_sums)(const specdec__attention_sums *into, const specdec__attention_sums *from, int count)
{
    int i, j;

    for (i = 0; i < count; i++) {
        float *row = into->row + i * into->width, *other = from->row + i * into->width, top = from->highest[i];
        const float *lower = other, *higher = row;
        const V factor = X(exp)(X(set)(top > into->highest[i] ? into->highest[i] - top : top - into->highest[i]));

        if (top <= SPECDEC__NO_SCORE)
            continue;
        if (top > into->highest[i]) {
            into->highest[i] = top;
            lower = row;
            higher = other;
        }
        for (j = 0; j < into->width; j += SPECDEC__LANES)
            X(store)(row + j, X(madd)(X(load)(lower + j), factor, X(load)(higher + j)));
    }
}

/* The sum of x (16), by the canonical tree. */
SPECDEC__LANE float X(sum16)(const float *x)
{
    V parts[SPECDEC__PARTS];
    int p;

    for (p = 0; p < SPECDEC__PARTS; p++)
        parts[p] = X(load)(x + p * SPECDEC__LANES);
    return X(sum)(parts);
}

/* Whether x (count) times factor are all finite: a finite number times 0 is 0. */
SPECDEC__LANE int X(all_finite)(const float *x, float factor, int count)
{
    V parts[SPECDEC__PARTS];
    int i, p;

    for (p = 0; p < SPECDEC__PARTS; p++) {
        parts[p] = X(set)(0);
        for (i = p * SPECDEC__LANES; i < count; i += 16)
            parts[p] = X(add)(parts[p], X(mul)(X(mul)(X(load)(x + i), X(set)(factor)), X(set)(0)));
    }
    return X(sum)(parts) == 0;
}

/* largest (groups) = the largest of each 64 numbers of x (groups, 64). Returns whether all of them are below 1e30 in
   magnitude, and none is NaN. */
SPECDEC__LANE int X(find_largest)(const float *x, int groups, float *largest)
{
    V zeros[SPECDEC__PARTS], part[SPECDEC__PARTS];
    int i, k, p;

    for (p = 0; p < SPECDEC__PARTS; p++)
        zeros[p] = X(set)(0);
    for (i = 0; i < groups; i++, x += 64) {
        for (p = 0; p < SPECDEC__PARTS; p++)
            for (k = 0; k < 64; k += 16) {
                const V some = X(load)(x + k + p * SPECDEC__LANES);

                zeros[p] = X(madd)(X(mul)(some, X(set)(1e8f)), X(set)(0), zeros[p]); /* NaN where it is too large */
                part[p] = k ? X(max)(some, part[p]) : some;
            }
        largest[i] = X(largest_lane)(part);
    }
    return X(sum)(zeros) == 0;
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

/* Joins groups 2 i and 2 i + 1 of a block in planes into codes of Q8_0: from their nibbles, their lowest bits of the
   upper plane, and the 3 lines of the lower plane (NULL: SPECDEC__PLANE_MIDDLE). */
SPECDEC__VECTORISE SPECDEC__LANE_INLINE void X(join_two_groups)(const unsigned char *nibbles, const unsigned char *bits,
                                                                const unsigned char *lower, int i, unsigned char *out)
{
    uint32_t n[16], f[16], low[3][16], even[16], odd[16];
    int k, line;

    memcpy(n, nibbles, 64);
    memcpy(f, bits, 64);
    for (k = 0; k < 16; k++) {
        even[k] = (n[k] << 4 & 0xF0F0F0F0u) | (f[k] >> 2 * i & 0x01010101u) << 3;
        odd[k] = (n[k] & 0xF0F0F0F0u) | (f[k] >> (2 * i + 1) & 0x01010101u) << 3;
    }
    for (line = 0; lower && line < 3; line++) {
        memcpy(low[line], lower + line * 64, 64);
        for (k = 0; k < 16; k++) {
            even[k] |= (low[line][k] >> 2 * i & 0x01010101u) << line;
            odd[k] |= (low[line][k] >> (2 * i + 1) & 0x01010101u) << line;
        }
    }
    for (k = 0; k < 16; k++) {
        even[k] ^= lower ? 0x80808080u : 0x80808080u | 0x01010101u * SPECDEC__PLANE_MIDDLE;
        odd[k] ^= lower ? 0x80808080u : 0x80808080u | 0x01010101u * SPECDEC__PLANE_MIDDLE;
    }
    memcpy(out, even, 64);
    memcpy(out + 64, odd, 64);
}

/* Joins blocks [from, from + blocks) of a matrix in planes into a tile of Q8_0. whole 0: without the lower plane. */
SPECDEC__VECTORISE SPECDEC__LANE void X(join_planes)(const unsigned char *planes, size_t from, int blocks, int whole,
                                                     unsigned char *tile)
{
    const unsigned char *upper = planes + from * SPECDEC__PLANE_UPPER;
    const unsigned char *lower = planes - (from + 1) * SPECDEC__PLANE_LOWER;
    int b, i;

    for (b = 0; b < blocks; b++, upper += SPECDEC__PLANE_UPPER, lower -= SPECDEC__PLANE_LOWER) {
        memcpy(tile, upper, 32);
        tile += 32;
        for (i = 0; i < 4; i++, tile += 128)
            if (whole)
                X(join_two_groups)(upper + 32 + i * 64, upper + 288, lower, i, tile);
            else
                X(join_two_groups)(upper + 32 + i * 64, upper + 288, NULL, i, tile);
    }
}

/* sums (count, 16) += 1e-30 + norms (count, parts) times bounds (parts, 16). */
SPECDEC__LANE void X(add_bounds)(float *sums, int count, const uint16_t *bounds, size_t stride, const float *norms)
{
    V width;
    int c, i, part;

    for (c = 0; c < count; c++, norms += SPECDEC__PLANE_PARTS)
        for (i = 0; i < 16; i += SPECDEC__LANES, sums += SPECDEC__LANES) {
            width = X(set)(1e-30f);
            for (part = 0; part < SPECDEC__PLANE_PARTS; part++)
                width = X(madd)(X(set)(norms[part]), X(load_bf16)(bounds + (size_t)part * stride + i), width);
            X(store)(sums, X(add)(X(load)(sums), width));
        }
}

/* The exact sum of the 32 products of a block of Q8_0 codes and a column's integers. */
SPECDEC__VECTORISE SPECDEC__LANE_INLINE int32_t X(dot_file_block)(const unsigned char *row, const int16_t *x)
{
    int32_t dot = 0;
    int i;

    for (i = 0; i < 32; i++)
        dot += (int8_t)row[i] * x[i];
    return dot;
}

/* out (16) = 16 rows of Q8_0, as the file has them, times a column. */
SPECDEC__VECTORISE SPECDEC__LANE void X(multiply_file_rows)(const unsigned char *const *rows, int blocks,
                                                            const specdec__columns *x, int column, float *out)
{
    unsigned char scales[32]; /* 16 half floats */
    float dots[16];
    V acc[SPECDEC__PARTS];
    int16_t values[32];
    int b, i, p;

    for (p = 0; p < SPECDEC__PARTS; p++)
        acc[p] = X(set)(0);
    for (b = 0; b < blocks; b++) {
        const size_t at = (size_t)b * (size_t)x->n + (size_t)column;
        const int offset = (int16_t)(x->pair32[at] & 0xFFFF);

        for (i = 0; i < 32; i++)
            values[i] = (int16_t)(x->codes[at * 32 + (size_t)i] + offset);
        for (i = 0; i < 16; i++) {
            memcpy(scales + 2 * i, rows[i] + b * 34, 2);
            dots[i] = (float)X(dot_file_block)(rows[i] + b * 34 + 2, values);
        }
        for (p = 0; p < SPECDEC__PARTS; p++)
            acc[p] = X(madd)(X(mul)(X(load_f16)(scales + p * SPECDEC__LANES * 2), X(set)(x->scale[at])),
                             X(load)(dots + p * SPECDEC__LANES), acc[p]);
    }
    for (p = 0; p < SPECDEC__PARTS; p++)
        X(store)(out + p * SPECDEC__LANES, acc[p]);
}

/* out (count) = the sum of weights * rows over taps, plus bias; silu: then silu(out). */
SPECDEC__LANE void X(convolve)(const float *const *rows, const float *weights, size_t stride, int taps,
                               const float *bias, int silu, int count, float *out)
{
    int i, tap;

    for (i = 0; i < count; i += SPECDEC__LANES) {
        V sum = X(mul)(X(load)(weights + i), X(load)(rows[0] + i));

        for (tap = 1; tap < taps; tap++)
            sum = X(madd)(X(load)(weights + (size_t)tap * stride + i), X(load)(rows[tap] + i), sum);
        sum = bias ? X(add)(sum, X(load)(bias + i)) : sum;
        X(store)(out + i, silu ? X(times_sigmoid)(sum, X(sub)(X(set)(0), sum)) : sum);
    }
}

/* Updates columns [at, at + `count` vectors) of the matrix of a state: see specdec__state_update. */
SPECDEC__LANE_INLINE void X(update_columns)(const specdec__state_update *r, int at, int corrects, int wanted, int count)
{
    const V decay = X(set)(r->decay), rate = X(set)(r->rate);
    V change[SPECDEC__WIDTH], out[SPECDEC__WIDTH];
    float *row = r->matrix + at;
    int i, c;

    SPECDEC__UNROLL
    for (c = 0; c < count; c++)
        change[c] = out[c] = X(set)(0);
    for (i = 0; i < r->rows && corrects; i++, row += r->values) {
        const V key = X(set)(r->key[i]);

        SPECDEC__UNROLL
        for (c = 0; c < count; c++)
            change[c] = X(madd)(key, X(mul)(X(load)(row + c * SPECDEC__LANES), decay), change[c]);
    }
    SPECDEC__UNROLL
    for (c = 0; c < count; c++) {
        const V value = X(load)(r->value + at + c * SPECDEC__LANES);

        change[c] = X(mul)(rate, corrects ? X(sub)(value, change[c]) : value);
    }
    row = r->matrix + at;
    for (i = 0; i < r->rows; i++, row += r->values) {
        const V key = X(set)(r->key[i]), query = X(set)(wanted ? r->query[i] : 0);

        SPECDEC__UNROLL
        for (c = 0; c < count; c++) {
            const V m = X(madd)(key, change[c], X(mul)(X(load)(row + c * SPECDEC__LANES), decay));

            X(store)(row + c * SPECDEC__LANES, m);
            out[c] = wanted ? X(madd)(query, m, out[c]) : out[c];
        }
    }
    if (!wanted)
        return;
    SPECDEC__UNROLL
    for (c = 0; c < count; c++)
        X(store)(r->out + at + c * SPECDEC__LANES, out[c]);
}

/* Updates all columns of a state's matrix. corrects, wanted: constants, so that each variant has its own code. */
SPECDEC__LANE_INLINE void X(update_all_columns)(const specdec__state_update *r, int corrects, int wanted)
{
    int at = 0;

    for (; at + SPECDEC__WIDTH * SPECDEC__LANES <= r->values; at += SPECDEC__WIDTH * SPECDEC__LANES)
        X(update_columns)(r, at, corrects, wanted, SPECDEC__WIDTH);
    for (; at < r->values; at += SPECDEC__LANES)
        X(update_columns)(r, at, corrects, wanted, 1);
}

/* Updates the state of a recurrent layer's head: see specdec__state_update. */
SPECDEC__LANE void X(update_state)(const specdec__state_update *r)
{
    if (!SPECDEC__HAS_RECURRENT_LAYERS)
        return;
    if (r->corrects && r->query)
        X(update_all_columns)(r, 1, 1);
    else if (r->corrects)
        X(update_all_columns)(r, 1, 0);
    else if (r->query)
        X(update_all_columns)(r, 0, 1);
    else
        X(update_all_columns)(r, 0, 0);
}

/* x = cap * tanh(x / cap), elementwise, where tanh(y) = 1 - 2 / (1 + e^(2y)). */
SPECDEC__LANE void X(soft_cap)(float *x, float cap, int count)
{
    const V twice = X(set)(2 / cap), limit = X(set)(cap);
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store)(x + i, X(mul)(limit, X(sub)(X(set)(1), X(times_sigmoid)(X(set)(2), X(mul)(X(load)(x + i), twice)))));
}

/* out (count, stride) = sums (count, 16) [+ bias]. */
SPECDEC__LANE void X(store_sums)(const float *sums, int count, const float *bias, float *out, size_t stride)
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

/* Converts half floats to floats. */
SPECDEC__LANE void X(f16_to_float)(const void *in, int count, float *out)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store)(out + i, X(load_f16)((const unsigned char *)in + i * 2));
}

/* Converts floats to half floats. */
SPECDEC__LANE void X(float_to_f16)(const float *in, int count, void *out)
{
    int i;

    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store_f16)((unsigned char *)out + i * 2, X(load)(in + i));
}

/* Quantises values (count, a multiple of 32) to codes in [-127, 127]. Returns the scale: the largest magnitude over
   127. */
SPECDEC__LANE float X(float_to_codes)(const float *values, int count, int8_t *codes)
{
    V sizes[SPECDEC__PARTS];
    float scale, inverse;
    int i, p;

    for (p = 0; p < SPECDEC__PARTS; p++) {
        sizes[p] = X(set)(0);
        for (i = p * SPECDEC__LANES; i < count; i += 16) {
            V x = X(load)(values + i);

            sizes[p] = X(max)(X(max)(X(sub)(X(set)(0), x), x), sizes[p]);
        }
    }
    scale = X(largest_lane)(sizes) * (1.0f / 127.0f);
    inverse = scale > 1e-30f && scale < 1e30f ? 1.0f / scale : 0;
    for (i = 0; i < count; i += SPECDEC__LANES)
        X(store_low_bytes)(codes + i, X(madd)(X(load)(values + i), X(set)(inverse), X(set)(12582912.0f)));
    return inverse > 0 ? scale : 0;
}

/* e^x / 2^base as the 8-bit weights of values need it, at most about 1: within 1.1e-4, and at least 2^-126. */
SPECDEC__LANE_LONG_FUNCTION V X(exp_approximate)(V x, V base)
{
    const V magic = X(set)(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    V shifter, p;

    x = X(max)(X(madd)(x, X(set)(1.44269502f), base), X(set)(-126.0f));
    shifter = X(add)(x, magic);
    x = X(sub)(x, X(sub)(shifter, magic));
    p = X(madd)(x, X(set)(0.055008933f), X(set)(0.242211f));
    p = X(madd)(X(madd)(p, x, X(set)(0.6932829f)), x, X(set)(1));
    return X(times_power_of_2)(p, shifter);
}

/* part (16 lanes) = lane by lane, the largest of 64 numbers in 4 groups of 16, `apart` floats apart. */
SPECDEC__LANE_INLINE void X(block_largest)(const float *x, size_t apart, V *part)
{
    int k, p;

    for (p = 0; p < SPECDEC__PARTS; p++, x += SPECDEC__LANES) {
        part[p] = X(load)(x);
        for (k = 1; k < SPECDEC__KEYS / 16; k++)
            part[p] = X(max)(X(load)(x + (size_t)k * apart), part[p]);
    }
}

/* top[i] = the largest of the 16 lanes of part i, i < count. Parts are there for a multiple of four. */
SPECDEC__LANE SPECDEC__NOINLINE void X(block_maxima)(const V *parts, int count, float *top)
{
    int i;

    for (i = 0; i < count; i += 4)
        X(largest_lanes_of_four)(parts + i * SPECDEC__PARTS, top + i);
}

/* Updates the largest scores of the `some` queries from number `from` on with those of a block, top (16). factor (16):
   exp(old - new), by which earlier sums are scaled. */
SPECDEC__LANE_INLINE void X(block_raise_largest)(const specdec__softmax_block *s, int from, int some, float *top,
                                                 float *factor)
{
    int i, p;

    for (i = 0; i < 16; i++)
        factor[i] = 0;
    for (i = 0; i < some; i++) {
        float *highest = s->sums->highest + s->query[from + i], old = *highest;

        *highest = top[i] = top[i] > old ? top[i] : old;
        factor[i] = old - top[i];
    }
    for (p = 0; p < 16; p += SPECDEC__LANES)
        X(store)(factor + p, X(exp_approximate)(X(load)(factor + p), X(set)(0)));
    for (i = 0; i < some; i++)
        s->factor[from + i] = factor[i];
}

/* Turns a query's scores x, none above `top`, into weights exp(score - top), adds them to total (16) scaled by
   `factor`, then multiplies them by the scales of the values. part: lane by lane, the largest of these products. */
SPECDEC__LANE_INLINE void X(block_weights)(float *x, size_t apart, const float *scales, float top, float factor,
                                           float *total, V *part)
{
    const V base = X(set)(-1.44269502f * top);
    int k, p;

    for (p = 0; p < 16; p += SPECDEC__LANES) {
        V most = X(set)(0), sum = X(mul)(X(load)(total + p), X(set)(factor));

        for (k = 0; k < SPECDEC__KEYS / 16; k++) {
            V weight = X(exp_approximate)(X(load)(x + (size_t)k * apart + p), base);

            sum = X(add)(sum, weight);
            weight = X(mul)(weight, X(load)(scales + k * 16 + p));
            most = X(max)(weight, most);
            X(store)(x + (size_t)k * apart + p, weight);
        }
        X(store)(total + p, sum);
        part[p / SPECDEC__LANES] = most;
    }
}

/* Softmax of several queries, 16 at a time, over a block of keys, with 8-bit weights of values: see
   specdec__softmax_block. Each step is done for all 16 before the next, as the instructions of a step wait for each
   other. */
SPECDEC__LANE void X(softmax_codes)(const specdec__softmax_block *s)
{
    const float *const scales = s->value_scales;
    const size_t apart = (size_t)s->stride * 16;
    float top[16], factor[16];
    V parts[16 * SPECDEC__PARTS];
    int from, some, i, k, p;

    for (i = 0; i < 16 * SPECDEC__PARTS; i++)
        parts[i] = X(set)(0);
    for (from = 0; from < s->count; from += some) {
        float *const x = s->scores + from * 16;
        int8_t *codes = (int8_t *)s->codes + from * SPECDEC__KEYS;

        some = specdec__min_int(16, s->count - from);
        for (i = 0; i < some; i++)
            X(block_largest)(x + i * 16, apart, parts + i * SPECDEC__PARTS);
        X(block_maxima)(parts, some, top);
        X(block_raise_largest)(s, from, some, top, factor);
        for (i = 0; i < some; i++)
            X(block_weights)(x + i * 16, apart, scales, top[i], factor[i],
                             s->sums->row + s->query[from + i] * (size_t)s->sums->width, parts + i * SPECDEC__PARTS);
        X(block_maxima)(parts, some, top);
        for (i = 0; i < some; i++) {
            const float scale = top[i] * (1.0f / 255.0f);
            const int good = scale > 1e-30f && scale < 1e30f; /* 0: too small or too large to divide by */

            s->scale[from + i] = good ? scale : 0;
            factor[i] = good ? 1.0f / scale : 0;
        }
        for (i = 0; i < some; i++)
            for (k = 0; k < SPECDEC__KEYS / 16; k++)
                for (p = 0; p < 16; p += SPECDEC__LANES, codes += SPECDEC__LANES)
                    X(store_low_bytes)(codes, X(madd)(X(load)(x + i * 16 + (size_t)k * apart + p), X(set)(factor[i]),
                                                      X(set)(12582912.0f)));
    }
}
#endif /* parts only */
