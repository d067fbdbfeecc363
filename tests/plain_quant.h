/* plain_quant.h - decoders and encoders of block formats as simple as can be: one value after the other. What specdec.h does faster
   must be the same, bit for bit: test_quant compares. Include after specdec.h with its implementation. */
#ifndef PLAIN_QUANT_H
#define PLAIN_QUANT_H

/* Float to half float, to nearest even; from 65520 on infinite, a NaN stays a NaN. */
static inline uint16_t plain_f16_from_float(float value)
{
    uint32_t bits = specdec__bits_from_float(value), sign = (bits >> 16) & 0x8000u;

    bits &= 0x7FFFFFFFu;
    if (bits > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | ((bits >> 13) & 0x3FFu));
    if (bits >= 0x47800000u)
        return (uint16_t)(sign | 0x7C00u);
    if (bits < 0x33000000u)
        return (uint16_t)sign;
    if (bits < 0x38800000u) {
        uint32_t shift = 126u - (bits >> 23), mantissa = (bits & 0x7FFFFFu) | 0x800000u;
        return (uint16_t)(sign | (mantissa + (1u << (shift - 1)) - 1u + ((mantissa >> shift) & 1u)) >> shift);
    }
    return (uint16_t)(sign | (bits - 0x38000000u + 0xFFFu + ((bits >> 13) & 1u)) >> 13);
}

/* Code k of a point of a grid: `bits` bits of it say which magnitude, bit k of signs whether it is negative. */
static inline int8_t plain_code(unsigned point, int bits, const signed char *magnitudes, unsigned signs, int k)
{
    int value = magnitudes[point >> (bits * k) & ((1u << bits) - 1)];

    return (int8_t)(signs >> (k % 8) & 1 ? -value : value);
}

/* Eight signs, of which word holds seven from bit `at` on; the eighth makes their number even. */
static inline unsigned plain_signs(unsigned word, int at)
{
    unsigned signs = word >> at & 127, odd = 0;
    int i;

    for (i = 0; i < 7; i++)
        odd ^= signs >> i & 1;
    return signs | odd << 7;
}

static const signed char plain_iq2[4] = {8, 25, 43, 0};

static void plain_decode_iq2_xxs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    int i;

    (void)minimum;
    for (i = 0; i < 256; i++) {
        const unsigned char *group = block + 2 + i / 32 * 8;
        unsigned word = specdec__load_u32(group + 4);

        codes[i] = plain_code(specdec__quant_iq2_xxs_grid[group[i / 8 % 4]], 2, plain_iq2, plain_signs(word, i / 8 % 4 * 7), i % 8);
        scale[i / 32] = specdec__load_f16(block) * (0.5f + (float)(word >> 28)) * 0.25f;
    }
}

static void plain_decode_iq3_xxs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    static const signed char magnitudes[16] = {4, 12, 20, 28, 36, 44, 52, 62};
    int i;

    (void)minimum;
    for (i = 0; i < 256; i++) {
        unsigned word = specdec__load_u32(block + 66 + i / 32 * 4), signs = plain_signs(word, i / 8 % 4 * 7);

        codes[i] = plain_code(specdec__quant_iq3_xxs_grid[block[2 + i / 4]], 4, magnitudes, signs >> (i & 4), i % 4);
        scale[i / 32] = specdec__load_f16(block) * (0.5f + (float)(word >> 28)) * 0.5f;
    }
}

static void plain_decode_iq3_s(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    static const signed char magnitudes[16] = {1, 3, 5, 7, 9, 11, 13, 15};
    int i;

    (void)minimum;
    for (i = 0; i < 256; i++) {
        int index = block[2 + i / 4] + 256 * (block[66 + i / 32] >> (i / 4 % 8) & 1);

        codes[i] = plain_code(specdec__quant_iq3_s_grid[index], 4, magnitudes, (unsigned)block[74 + i / 8] >> (i & 4), i % 4);
        scale[i / 32] = specdec__load_f16(block) * (float)(1 + 2 * (block[106 + i / 64] >> (i / 32 % 2 * 4) & 15));
    }
}

static void plain_decode_iq2_xs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    int i;

    (void)minimum;
    for (i = 0; i < 256; i++) {
        unsigned word = specdec__load_u16(block + 2 + i / 8 * 2);

        codes[i] = plain_code(specdec__quant_iq2_xs_grid[word % 512], 2, plain_iq2, plain_signs(word, 9), i % 8);
        scale[i / 16] = specdec__load_f16(block) * (0.5f + (float)(block[66 + i / 32] >> (i / 16 % 2 * 4) & 15)) * 0.25f;
    }
}

static void plain_decode_iq2_s(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    int i;

    (void)minimum;
    for (i = 0; i < 256; i++) {
        int index = block[2 + i / 8] + 256 * (block[66 + i / 32] >> (i / 8 % 4 * 2) & 3);

        codes[i] = plain_code(specdec__quant_iq2_s_grid[index], 2, plain_iq2, block[34 + i / 8], i % 8);
        scale[i / 16] = specdec__load_f16(block) * (0.5f + (float)(block[74 + i / 32] >> (i / 16 % 2 * 4) & 15)) * 0.25f;
    }
}

/* The shift of eight values of IQ1, in eighths, beside 8 times a value of -1, 0 or 1. */
static inline int8_t plain_iq1(unsigned index, int minus, int k)
{
    return (int8_t)(8 * ((int)(specdec__quant_iq1_grid[index] >> (2 * k) & 3) - 1) + (minus ? -1 : 1));
}

static void plain_decode_iq1_s(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    int i;

    (void)minimum;
    for (i = 0; i < 256; i++) {
        unsigned h = specdec__load_u16(block + 34 + i / 32 * 2);

        codes[i] = plain_iq1(block[2 + i / 8] + 256 * (h >> (i / 8 % 4 * 3) & 7), h >= 0x8000, i % 8);
        scale[i / 32] = specdec__load_f16(block) * (float)(1 + 2 * (h >> 12 & 7)) / 8;
    }
}

static void plain_decode_iq1_m(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    unsigned half = 0;
    int i;

    (void)minimum;
    for (i = 0; i < 4; i++)
        half += (unsigned)(block[49 + 2 * i] >> 4) << (4 * i);
    for (i = 0; i < 256; i++) {
        unsigned four = block[32 + i / 16] >> (i / 8 % 2 * 4) & 15;

        codes[i] = plain_iq1(block[i / 8] + 256 * (four & 7), four >= 8, i % 8);
        scale[i / 16] = specdec__float_from_f16((uint16_t)half) *
                        (float)(1 + 2 * (specdec__load_u16(block + 48 + i / 64 * 2) >> (i / 16 % 4 * 3) & 7)) / 8;
    }
}

static void plain_decode_tq1_0(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    int i, n;

    (void)minimum;
    for (i = 0; i < 256; i++) {
        unsigned byte = i < 160 ? block[i % 32] : i < 240 ? block[32 + (i - 160) % 16] : block[48 + (i - 240) % 4];

        for (n = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4; n > 0; n--)
            byte = byte * 3 % 256;
        codes[i] = (int8_t)((int)(byte * 3 / 256) - 1);
        scale[i / 32] = specdec__load_f16(block + 52);
    }
}

typedef void plain_decoder(const unsigned char *block, int8_t *codes, float *scale, float *minimum);

/* Types whose decoders in specdec.h are more than plain. */
static const struct { uint32_t type; plain_decoder *decode; } plain_decoders[] = {
    {SPECDEC__TYPE_IQ2_XXS, plain_decode_iq2_xxs},
    {SPECDEC__TYPE_IQ3_XXS, plain_decode_iq3_xxs},
    {SPECDEC__TYPE_IQ3_S, plain_decode_iq3_s},
    {SPECDEC__TYPE_IQ2_XS, plain_decode_iq2_xs},
    {SPECDEC__TYPE_IQ2_S, plain_decode_iq2_s},
    {SPECDEC__TYPE_IQ1_S, plain_decode_iq1_s},
    {SPECDEC__TYPE_IQ1_M, plain_decode_iq1_m},
    {SPECDEC__TYPE_TQ1_0, plain_decode_tq1_0},
};

/* The integer nearest to value (to the even one at a tie) in [low, high], both below 2^50; low for a NaN. */
static inline double plain_nearest(double value, double low, double high)
{
    value = value > low ? value : low;
    value = value < high ? value : high;
    return (value + 6755399441055744.0) - 6755399441055744.0;
}

static inline int plain_round(double value, int low, int high)
{
    return (int)plain_nearest(value, (double)low, (double)high);
}

static inline double plain_inverse(double value) { return value != 0 ? 1 / value : 0; }

/* The value of largest magnitude, with its sign; NaNs do not count. */
static float plain_peak(int count, const float *values)
{
    float peak = 0, magnitude = 0;
    int i;

    for (i = 0; i < count; i++) {
        float m = values[i] < 0 ? -values[i] : values[i];
        if (m > magnitude) {
            magnitude = m;
            peak = values[i];
        }
    }
    return peak;
}

static void plain_encode_q8_0(const float *values, unsigned char *block)
{
    float peak = plain_peak(32, values);
    uint16_t d = plain_f16_from_float((peak < 0 ? -peak : peak) / 127);
    double inverse = plain_inverse(specdec__float_from_f16(d));
    int i;

    specdec__store_u16(block, d);
    for (i = 0; i < 32; i++)
        block[2 + i] = (unsigned char)plain_round((double)values[i] * inverse, -127, 127);
}

/* Sums over a group that a least squares fit of values by codes needs. */
typedef struct plain_sums {
    double code_value, code_code, code; /* sum of weight * code * value, weight * code^2, weight * code */
} plain_sums;

static inline void plain_add(plain_sums *sums, double code, double weight, double weighted)
{
    sums->code_value += weighted * code;
    sums->code_code += weight * (code * code);
    sums->code += weight * code;
}

/* The sums for the codes in [low, high] nearest to (value - origin) * inverse, count (even) of them;
   weighted[i] = weight * value, exactly. */
static inline plain_sums plain_try(int count, double low, double high, double inverse, float origin,
                                   const float *values, const float *weights,
                                   const double *weighted)
{
    plain_sums even = {0, 0, 0}, odd = {0, 0, 0};
    int i;

    for (i = 0; i < count; i += 2) {
        double a = plain_nearest((double)(values[i] - origin) * inverse, low, high);
        double b = plain_nearest((double)(values[i + 1] - origin) * inverse, low, high);

        plain_add(&even, a, (double)weights[i], weighted[i]);
        plain_add(&odd, b, (double)weights[i + 1], weighted[i + 1]);
    }
    even.code_value += odd.code_value;
    even.code_code += odd.code_code;
    even.code += odd.code;
    return even;
}

/* Codes that the value of largest magnitude is tried at, before rounding: near either end of the range. 5.1 and 3 of
   Q4_0 are where values that were IQ2_XXS (8, 25, 43 times a scale) fall almost on whole codes. */
static const float plain_peaks_q4_0[] = {-8.8f, -8.4f, -8, -7.6f, -7.2f, 6.2f, 6.6f, 7, 7.4f, 7.8f, 5.1f, 3};
static const float plain_peaks_q5_0[] = {-16.8f, -16.4f, -16, -15.6f, -15.2f, 14.2f, 14.6f, 15, 15.4f, 15.8f};
static const float plain_peaks_q6_k[] = {-32.8f, -32.4f, -32, -31.6f, -31.2f, 30.2f, 30.6f, 31, 31.4f, 31.8f};

/* Scale s that minimises sum of weight * (value - s * code)^2 over codes in [low, high], of the tries at peaks (tries).
   0 when all values are. */
static inline float plain_fit_scale(int count, double low, double high, const float *peaks, size_t tries,
                                    const float *values, const float *weights, const double *weighted)
{
    float peak = plain_peak(count, values);
    double best = 0, scale = 0, inverse = plain_inverse(peak);
    size_t t;

    if (!(peak - peak == 0))
        return peak;
    for (t = 0; t < tries; t++) {
        plain_sums s = plain_try(count, low, high, (double)peaks[t] * inverse, 0, values, weights,
                                 weighted);
        double gain = s.code_code > 0 ? s.code_value * s.code_value / s.code_code : 0;

        if (gain > best) {
            best = gain;
            scale = s.code_value / s.code_code;
        }
    }
    return (float)scale;
}

/* Weights of 32 values, |value| plus 1.25 times their mean, and weight * value. Returns 0 for what is not finite. */
static int plain_weigh(const float *values, float *weights, double *weighted)
{
    double base = 0;
    int i;

    for (i = 0; i < 32; i++)
        base += (double)(values[i] < 0 ? -values[i] : values[i]);
    base = specdec__product(base, 1.25 / 32);
    for (i = 0; i < 32; i++) {
        weights[i] = (float)(base + (double)(values[i] < 0 ? -values[i] : values[i]));
        weighted[i] = (double)weights[i] * (double)values[i];
    }
    return base - base == 0;
}

static void plain_encode_q4_0(const float *values, unsigned char *block)
{
    float weights[32];
    double weighted[32], inverse;
    uint16_t d;
    int i;

    plain_weigh(values, weights, weighted);
    d = plain_f16_from_float(plain_fit_scale(32, -8, 7, plain_peaks_q4_0, SPECDEC__COUNT(plain_peaks_q4_0), values,
                                             weights, weighted));
    inverse = plain_inverse(specdec__float_from_f16(d));
    specdec__store_u16(block, d);
    for (i = 0; i < 16; i++) {
        int low = plain_round((double)values[i] * inverse, -8, 7) + 8;
        int high = plain_round((double)values[i + 16] * inverse, -8, 7) + 8;
        block[2 + i] = (unsigned char)(low | high << 4);
    }
}

/* Five bits of value i: four go to a nibble, the fifth to bit i of the word `high`. */
static void plain_put_five_bits(int i, int code, unsigned char *high, unsigned char *nibbles)
{
    nibbles[i % 16] = (unsigned char)(nibbles[i % 16] | (code & 15) << (i / 16 * 4));
    high[i / 8] = (unsigned char)(high[i / 8] | (code >> 4) << (i % 8));
}

static void plain_encode_q5_0(const float *values, unsigned char *block)
{
    float weights[32];
    double weighted[32], inverse;
    uint16_t d;
    int i;

    plain_weigh(values, weights, weighted);
    d = plain_f16_from_float(plain_fit_scale(32, -16, 15, plain_peaks_q5_0, SPECDEC__COUNT(plain_peaks_q5_0), values,
                                             weights, weighted));
    inverse = plain_inverse(specdec__float_from_f16(d));
    memset(block, 0, 22);
    specdec__store_u16(block, d);
    for (i = 0; i < 32; i++)
        plain_put_five_bits(i, plain_round((double)values[i] * inverse, -16, 15) + 16, block + 2, block + 6);
}

/* Weights are squared values: what is large must be met best. */
static void plain_encode_q6_k(const float *values, unsigned char *block)
{
    float scales[16], weights[16], d;
    double weighted[16];
    int i, g;

    for (g = 0; g < 16; g++) {
        const float *group = values + 16 * g;
        for (i = 0; i < 16; i++) {
            weights[i] = group[i] * group[i];
            weighted[i] = (double)weights[i] * (double)group[i];
        }
        scales[g] = plain_fit_scale(16, -32, 31, plain_peaks_q6_k,
                                    SPECDEC__COUNT(plain_peaks_q6_k), group, weights, weighted);
    }
    memset(block, 0, 210);
    specdec__store_u16(block + 208, plain_f16_from_float(plain_peak(16, scales) / -128));
    d = specdec__load_f16(block + 208);
    for (g = 0; g < 16; g++) {
        int scale = plain_round((double)scales[g] * plain_inverse(d), -128, 127);
        double inverse = plain_inverse((double)d * (double)scale);

        block[192 + g] = (unsigned char)scale;
        for (i = 16 * g; i < 16 * g + 16; i++) {
            int code = plain_round((double)values[i] * inverse, -32, 31) + 32;
            unsigned char *low = &block[i / 128 * 64 + i % 64], *high = &block[128 + i / 128 * 32 + i % 32];
            *low = (unsigned char)(*low | (code & 15) << (i / 64 % 2 * 4));
            *high = (unsigned char)(*high | (code >> 4) << (i / 32 % 4 * 2));
        }
    }
}

/* Scale s >= 0 and minimum m that minimise sum of weight * (value - (s * code - m))^2 over 32 values with codes from 0 to
   highest. m >= 0, unless it is free. */
static void plain_fit_affine(const float *values, int highest, int is_free, float *scale_out, float *minimum_out)
{
    float low = is_free ? specdec__float_from_bits(0x7F800000u) : 0, high = specdec__float_from_bits(0xFF800000u), weights[32];
    double weighted[32], sum = 0, value_sum = 0, best = -1;
    int i, t, is_finite = plain_weigh(values, weights, weighted);

    for (i = 0; i < 32; i++) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
    }
    low += 0.0f;
    *scale_out = 0;
    *minimum_out = -low;
    if (!(high > low) || !is_finite)
        return;
    for (i = 0; i < 32; i++) {
        sum += (double)weights[i];
        value_sum += weighted[i];
    }
    for (t = -10; t <= 10; t += 2) {
        double inverse = (double)(10 * highest + t) / 10 / ((double)high - (double)low);
        plain_sums s = plain_try(32, 0, highest, inverse, low, values, weights, weighted);
        double all = specdec__product(sum, s.code_code), rest = all - specdec__product(s.code, s.code);
        double scale = 0, minimum = -1, gain;

        if (rest > 1e-9 * all) {
            scale = (specdec__product(sum, s.code_value) - specdec__product(value_sum, s.code)) / rest;
            minimum = (specdec__product(scale, s.code) - value_sum) / sum;
        }
        if (!is_free && minimum < 0 && s.code_code > 0) {
            minimum = 0;
            scale = s.code_value / s.code_code;
        }
        gain = specdec__product(scale, s.code_value) - specdec__product(minimum, value_sum);
        if (gain > best && scale > 0 && (is_free || minimum >= 0)) {
            best = gain;
            *scale_out = (float)scale;
            *minimum_out = (float)minimum;
        }
    }
}

/* Codes from 0 to highest of 32 values; the scale goes to block, the minimum behind it, both as half floats. */
static void plain_affine_codes(const float *values, int highest, unsigned char *block, int *codes)
{
    float scale, below;
    double inverse;
    int i;

    plain_fit_affine(values, highest, 1, &scale, &below);
    specdec__store_u16(block, plain_f16_from_float(scale));
    specdec__store_u16(block + 2, plain_f16_from_float(-below));
    inverse = plain_inverse(specdec__load_f16(block));
    for (i = 0; i < 32; i++)
        codes[i] = plain_round(((double)values[i] - (double)specdec__load_f16(block + 2)) * inverse, 0, highest);
}

static void plain_encode_q4_1(const float *values, unsigned char *block)
{
    int i, codes[32];

    plain_affine_codes(values, 15, block, codes);
    for (i = 0; i < 16; i++)
        block[4 + i] = (unsigned char)(codes[i] | codes[i + 16] << 4);
}

static void plain_encode_q5_1(const float *values, unsigned char *block)
{
    int i, codes[32];

    memset(block, 0, 24);
    plain_affine_codes(values, 31, block, codes);
    for (i = 0; i < 32; i++)
        plain_put_five_bits(i, codes[i], block + 4, block + 8);
}

/* Packs eight 6-bit scales and minimums into the 12 bytes of Q4_K. */
static void plain_pack_scales_k(const int *scales, const int *minimums, unsigned char *packed)
{
    int i;

    for (i = 0; i < 4; i++) {
        packed[i] = (unsigned char)(scales[i] | (scales[i + 4] >> 4) << 6);
        packed[i + 4] = (unsigned char)(minimums[i] | (minimums[i + 4] >> 4) << 6);
        packed[i + 8] = (unsigned char)((scales[i + 4] & 15) | (minimums[i + 4] & 15) << 4);
    }
}

/* Q4_K and Q5_K: the lower four bits of codes go to nibbles, the fifth of value i of group g to bit g of high[i]. */
static void plain_encode_groups(const float *values, int highest, unsigned char *block, unsigned char *high, unsigned char *nibbles)
{
    float scales[8], minimums[8], d, dmin;
    int i, g, scale[8], minimum[8];

    for (g = 0; g < 8; g++)
        plain_fit_affine(values + 32 * g, highest, 0, &scales[g], &minimums[g]);
    specdec__store_u16(block, plain_f16_from_float(plain_peak(8, scales) / 63));
    specdec__store_u16(block + 2, plain_f16_from_float(plain_peak(8, minimums) / 63));
    d = specdec__load_f16(block);
    dmin = specdec__load_f16(block + 2);
    for (g = 0; g < 8; g++) {
        double inverse;

        scale[g] = plain_round((double)scales[g] * plain_inverse(d), 0, 63);
        minimum[g] = plain_round((double)minimums[g] * plain_inverse(dmin), 0, 63);
        inverse = plain_inverse((double)d * (double)scale[g]);
        for (i = 32 * g; i < 32 * g + 32; i++) {
            double above = (double)values[i] + (double)dmin * (double)minimum[g];
            int code = plain_round(above * inverse, 0, highest);
            unsigned char *at = &nibbles[i / 64 * 32 + i % 32];
            *at = (unsigned char)(*at | (code & 15) << (g % 2 * 4));
            if (high)
                high[i % 32] = (unsigned char)(high[i % 32] | (code >> 4) << g);
        }
    }
    plain_pack_scales_k(scale, minimum, block + 4);
}

static void plain_encode_q4_k(const float *values, unsigned char *block)
{
    memset(block, 0, 144);
    plain_encode_groups(values, 15, block, NULL, block + 16);
}

static void plain_encode_q5_k(const float *values, unsigned char *block)
{
    memset(block, 0, 176);
    plain_encode_groups(values, 31, block, block + 16, block + 48);
}

static void plain_encode_f32(const float *value, unsigned char *out)
{
    specdec__store_u32(out, specdec__bits_from_float(*value));
}

static void plain_encode_f16(const float *value, unsigned char *out)
{
    specdec__store_u16(out, plain_f16_from_float(*value));
}

static void plain_encode_bf16(const float *value, unsigned char *out)
{
    specdec__store_u16(out, specdec__bf16_from_float(*value));
}

static const struct {
    uint32_t type;
    void (*encode)(const float *values, unsigned char *block);
} plain_encoders[] = {
    {SPECDEC__TYPE_F32, plain_encode_f32}, {SPECDEC__TYPE_F16, plain_encode_f16},
    {SPECDEC__TYPE_BF16, plain_encode_bf16}, {SPECDEC__TYPE_Q8_0, plain_encode_q8_0},
    {SPECDEC__TYPE_Q4_0, plain_encode_q4_0}, {SPECDEC__TYPE_Q4_1, plain_encode_q4_1},
    {SPECDEC__TYPE_Q5_0, plain_encode_q5_0}, {SPECDEC__TYPE_Q5_1, plain_encode_q5_1},
    {SPECDEC__TYPE_Q4_K, plain_encode_q4_k},
    {SPECDEC__TYPE_Q5_K, plain_encode_q5_k}, {SPECDEC__TYPE_Q6_K, plain_encode_q6_k},
};

#endif
