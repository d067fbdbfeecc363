/* =====================================================================================================================
 * >>kernel/lanes_rows: loops over rows of logits, in a form that compilers vectorise. Included behind >>kernel/lanes
 *     for each instruction set; undefines its macros at the end.
 * ================================================================================================================== */

#ifndef SPECDEC__ISA /* alone: as the scalar reference includes it, parts only */
#include "scalar.h"
#else /* parts only */
#include "lanes.h"

/* The largest of x (count). NaNs are ignored; -infinity if all are NaN. */
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

/* Whether a token of 16 sets could reach `wanted` with its Gumbel noise. largest (16): the largest logit of each set;
   most (16): its largest random bits. With c = 1 - u, u uniform in (0, 1), the noise -log(-log(u)) is at most -log(c):
   it raises y to `wanted` only if c <= e^(y - wanted). That power is replaced by the straight line between the
   neighbouring powers 2^k and 2^(k+1), which lies above it. */
SPECDEC__VECTORISE SPECDEC__LANE_INLINE int X(may_reach)(const float *largest, const uint32_t *most, float best,
                                                         float inverse, float wanted)
{
    const float slack = 0.01f;
    float y[16];
    int j, found = 0;

    for (j = 0; j < 16; j++) {
        const float below = (largest[j] - best) * inverse - wanted + slack, least = below < 0.0f ? below : 0.0f;

        y[j] = (least > -80.0f ? least : -80.0f) * 12102203.0f; /* NaN gives -80, too */
    }
    for (j = 0; j < 16; j++) {
        const int32_t complement = (int32_t)(~most[j] >> 1); /* of u, in 1/2^31, rounded down */

        found |= (float)complement * 4.656e-10f <= specdec__float_from_bits((uint32_t)((int32_t)y[j] + 0x3f800000));
    }
    return found;
}

/* Counts tokens that cannot reach `wanted` with their Gumbel noise: see SPECDEC__KERNEL_LOOPS. Tokens are taken in
   groups of 64; those that are 16 apart are a set. Random bits are computed only for groups that some noise could raise
   enough. */
SPECDEC__VECTORISE SPECDEC__LANE int X(count_unreachable)(const float *logits, int count, float best, float inverse,
                                                          float wanted, uint64_t noise_row, uint32_t first)
{
    const float none = specdec__float_from_bits(0xff800000u);
    float largest[16], part[64];
    uint32_t bits[64], most[16];
    int from, j, some;

    for (from = 0; from < count; from += 64) {
        const float *x = logits + from;

        if (count - from < 64) {
            for (j = 0; j < 64; j++)
                part[j] = from + j < count ? x[j] : none;
            x = part;
        }
        for (j = some = 0; j < 16; j++) {
            const float a = x[j] > none ? x[j] : none, b = x[j + 16] > a ? x[j + 16] : a;
            const float c = x[j + 32] > b ? x[j + 32] : b;

            largest[j] = x[j + 48] > c ? x[j + 48] : c;
            some |= !((largest[j] - best) * inverse + SPECDEC__NOISE_MAXIMUM < wanted);
        }
        if (!some)
            continue;
        X(compute_noise_bits)(noise_row + (uint64_t)(first + (uint32_t)from) * SPECDEC__NOISE_TOKEN_STEP, bits);
        for (j = 0; j < 16; j++) {
            const uint32_t a = bits[j] > bits[j + 16] ? bits[j] : bits[j + 16];
            const uint32_t b = bits[j + 32] > bits[j + 48] ? bits[j + 32] : bits[j + 48];

            most[j] = a > b ? a : b;
        }
        if (X(may_reach)(largest, most, best, inverse, wanted))
            return from;
    }
    return count;
}

/* p (count) = e^((logit - best) / temperature); 0 where that is below e^-87. */
SPECDEC__LANE void X(token_weights)(const float *logits, int count, float best, float temperature, float *p)
{
    const V highest = X(set)(best), heat = X(set)(temperature), least = X(exp)(X(set)(-87.0f)); /* NaN gives it, too */
    float part[SPECDEC__LANES] = {0};
    int i, k;

    for (i = 0; i < count; i += SPECDEC__LANES) {
        const int few = count - i < SPECDEC__LANES;
        const float *from = few ? part : logits + i;
        float *to = few ? part : p + i;

        for (k = 0; few && i + k < count; k++)
            part[k] = logits[i + k];
        X(store)(to, X(max)(X(sub)(X(exp)(X(div)(X(sub)(X(load)(from), highest), heat)), least), X(set)(0)));
        for (k = 0; few && i + k < count; k++)
            p[i + k] = part[k];
    }
}

/* w (64) = e^(logit - best); 0 where that is below e^-87. */
SPECDEC__LANE_INLINE void X(weights_of_64)(const float *logits, float best, float *w)
{
    const V highest = X(set)(best), least = X(exp)(X(set)(-87.0f)); /* NaN gives it, too */
    int i;

    for (i = 0; i < 64; i += SPECDEC__LANES)
        X(store)(w + i, X(max)(X(sub)(X(exp)(X(sub)(X(load)(logits + i), highest)), least), X(set)(0)));
}

/* sums[i % 16] += e^(logit[i] - best); where logit[i] - best > least, sums[16 + i % 16], too. Four terms are added as
   floats before each sum in double. */
SPECDEC__VECTORISE SPECDEC__LANE void X(add_weights)(const float *logits, int count, float best, float least,
                                                     double *sums)
{
    double all[16], above[16];
    float x[64], w[64];
    const float *from;
    int i, j, k;

    memcpy(all, sums, sizeof all);
    memcpy(above, sums + 16, sizeof above);
    for (i = 0; i < count; i += 64) {
        const int few = count - i < 64;

        for (j = 0; few && j < 64; j++)
            x[j] = i + j < count ? logits[i + j] : specdec__float_from_bits(0xff800000u);
        X(weights_of_64)(few ? x : logits + i, best, w);
        from = few ? x : logits + i;
        for (j = 0; j < 64; j++)
            x[j] = from[j] - best > least ? w[j] : 0.0f;
        for (k = 0; k < 16; k++) {
            all[k] += (double)((w[k] + w[16 + k]) + (w[32 + k] + w[48 + k]));
            above[k] += (double)((x[k] + x[16 + k]) + (x[32 + k] + x[48 + k]));
        }
    }
    memcpy(sums, all, sizeof all);
    memcpy(sums + 16, above, sizeof above);
}

/* residuals[i % 16] += max(target[i] - (high + low) * draft[i] - uniform, 0); weights[i % 16] += draft[i]. */
SPECDEC__VECTORISE SPECDEC__LANE void X(add_residuals)(const float *target, const float *draft, int count, double high,
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
#undef SPECDEC__LANE_LONG_FUNCTION
#undef SPECDEC__LANES
#undef SPECDEC__PARTS
#undef SPECDEC__ROWS_AT_ONCE
#undef SPECDEC__UNROLL_PARTS
#undef SPECDEC__QUERIES_AT_ONCE
#undef SPECDEC__ISA
#undef SPECDEC__TARGET
#undef SPECDEC__WIDTH
#endif /* parts only */
