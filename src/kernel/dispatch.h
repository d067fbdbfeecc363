/* =====================================================================================================================
 * >>kernel/dispatch: the instruction sets: which of them this build has, which the processor has, the table of each.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../quant/types.h"
#include "../quant/table.h"
#include "../quant/tiles.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"
#include "x86.h"
#include "sse41.h"
#include "avx2.h"
#include "avx2_multiply.h"
#include "avx2_tiles.h"
#include "avx512.h"
#include "avx512_grid.h"
#include "avx512_tiles.h"
#include "avx512_rows.h"
#include "neon.h"
#include "neon_dotprod.h"
#include "neon_i8mm.h"
#include "neon_panels.h"
#include "neon_nibbles.h"
#include "neon32.h"
#include "rvv.h"
#include "lines.h"

#ifdef SPECDEC_NO_SSE41
#define SPECDEC__WITH_SSE41 0 /* 1: the build has kernels for SSE4.1 */
#else
#define SPECDEC__WITH_SSE41 1
#endif
#ifdef SPECDEC_NO_AVX2
#define SPECDEC__WITH_AVX2 0 /* 1: the build has kernels for AVX2 */
#else
#define SPECDEC__WITH_AVX2 1
#endif
#ifdef SPECDEC_NO_AVXVNNI
#define SPECDEC__WITH_AVXVNNI 0 /* 1: the build has kernels for AVX-VNNI */
#else
#define SPECDEC__WITH_AVXVNNI 1
#endif
#ifdef SPECDEC_NO_AVX512
#define SPECDEC__WITH_AVX512 0 /* 1: the build has kernels for AVX-512 */
#else
#define SPECDEC__WITH_AVX512 1
#endif
#ifdef SPECDEC_NO_DOTPROD
#define SPECDEC__WITH_DOTPROD 0 /* 1: the build has kernels for the dot products of ARMv8.2 */
#else
#define SPECDEC__WITH_DOTPROD 1
#endif
#ifdef SPECDEC_NO_I8MM
#define SPECDEC__WITH_I8MM 0 /* 1: the build has kernels for the matrix products of ARMv8.6 */
#else
#define SPECDEC__WITH_I8MM 1
#endif
#ifdef SPECDEC_NO_NEON32
#define SPECDEC__WITH_NEON32 0 /* 1: the build has kernels for 32-bit NEON */
#else
#define SPECDEC__WITH_NEON32 1
#endif
#ifdef SPECDEC_NO_RVV
#define SPECDEC__WITH_RVV 0 /* 1: the build has kernels for the vectors of RISC-V */
#else
#define SPECDEC__WITH_RVV 1
#endif

/* --- the tables --------------------------------------------------------------------------------------------------- */

/* 1 if this build has a type of a granule (16, 32), with or without minimums (M). */
#define SPECDEC__GRANULE_ROW(number, name, block, bytes, granule, bits, minimum, ...) \
    || (SPECDEC__HAS(name) && (granule) == SPECDEC__GRANULE && (minimum) == SPECDEC__MINIMUM)
#define SPECDEC__GRANULE 16 /* the granule that SPECDEC__GRANULE_ROW looks for: 16 or 32 values */
#define SPECDEC__MINIMUM 0 /* 0: SPECDEC__GRANULE_ROW looks for types without minimums, 1: with minimums */
enum { SPECDEC__HAS_16 = 0 SPECDEC__QUANT_TYPES(SPECDEC__GRANULE_ROW) };
#undef SPECDEC__MINIMUM
#define SPECDEC__MINIMUM 1
enum { SPECDEC__HAS_16M = 0 SPECDEC__QUANT_TYPES(SPECDEC__GRANULE_ROW) };
#undef SPECDEC__GRANULE
#define SPECDEC__GRANULE 32
enum { SPECDEC__HAS_32M = 0 SPECDEC__QUANT_TYPES(SPECDEC__GRANULE_ROW) };
#undef SPECDEC__GRANULE
#undef SPECDEC__MINIMUM

SPECDEC__FOR_SIZE
/* Enters an unpacker for all quantised types into a table. */
static void specdec__kernels_enter_unpacker(specdec__kernels *table, specdec__unpack_function *unpack)
{
    const specdec__quant_type *type = specdec__quant_types, *end = type + SPECDEC__COUNT(specdec__quant_types);

    for (; type < end; type++)
        table->unpack[type->number] = unpack;
}

/* Enters the dots of quantised types into a table, by granule and minimum. */
static void specdec__kernels_enter_dot_functions(specdec__kernels *table, specdec__dot_function *dot16,
                                                 specdec__dot_function *dot16m, specdec__dot_function *dot32,
                                                 specdec__dot_function *dot32m)
{
    const specdec__quant_type *type = specdec__quant_types, *end = type + SPECDEC__COUNT(specdec__quant_types);

    for (; type < end; type++)
        if (type->granule == 16)
            table->dot[type->number] = type->has_minimum ? dot16m : dot16;
        else if (type->granule == 32)
            table->dot[type->number] = type->has_minimum ? dot32m : dot32;
}

#define SPECDEC__DOT_KERNELS(table, name) \
    specdec__kernels_enter_dot_functions(table, SPECDEC__HAS_16 ? specdec__##name##_16 : NULL, \
                                         SPECDEC__HAS_16M ? specdec__##name##_16m : NULL, specdec__##name##_32, \
                                         SPECDEC__HAS_32M ? specdec__##name##_32m : NULL)

/* Most types are unpacked by their decoders. These macros enter faster functions for a type: an unpacker, or a kernel
   that multiplies without a panel. */
#define SPECDEC__TABLE_ENTRY(member, number, function) \
    table->member[SPECDEC__TYPE_##number] = SPECDEC__HAS(number) ? function : NULL
#define SPECDEC__X86_MULTIPLY_ENTRY(isa, number) \
    SPECDEC__TABLE_ENTRY(multiply, number, specdec__##isa##_multiply_##number);
#define SPECDEC__X86_UNPACK_ENTRY(isa, number) SPECDEC__TABLE_ENTRY(unpack, number, specdec__##isa##_unpack_##number);
#define SPECDEC__AVX512_GRID_ENTRY(isa, number) \
    SPECDEC__X86_UNPACK_ENTRY(isa, number) \
    SPECDEC__AVX512_PANEL_ENTRY(isa, number)
#define SPECDEC__AVX512_DECODED_ENTRY(isa, number) \
    SPECDEC__TABLE_ENTRY(unpack, number, specdec__avx512_unpack_by_decoder); \
    SPECDEC__AVX512_PANEL_ENTRY(isa, number)
#define SPECDEC__AVX512_PANEL_ENTRY(isa, number) \
    SPECDEC__TABLE_ENTRY(dot, number, \
                         specdec__x86_values_per_scale(SPECDEC__TYPE_##number) == 16 ? specdec__avx512_dot_16 \
                                                                                     : specdec__avx512_dot_32); \
    if (SPECDEC__HAS(number)) { \
        table->two_panel_types |= UINT64_C(1) << SPECDEC__TYPE_##number; \
        if (specdec__x86_values_per_scale(SPECDEC__TYPE_##number) == 16) \
            table->dot_two_panels[0] = specdec__avx512_pair_16; \
        else \
            table->dot_two_panels[1] = specdec__avx512_pair_32; \
    }

#define SPECDEC__AVX2_KERNELS(table, isa) \
    do { \
        specdec__kernels_enter_avx2_functions(table); \
        SPECDEC__X86_COMMON_TYPES(SPECDEC__X86_MULTIPLY_ENTRY, isa) \
        SPECDEC__X86_RARE_TYPES(SPECDEC__X86_MULTIPLY_ENTRY, isa) \
        SPECDEC__X86_GRID_TYPES(SPECDEC__X86_MULTIPLY_ENTRY, isa) \
        (table)->weigh_codes = specdec__##isa##_weigh_codes; \
        (table)->interleave = specdec__avx2_interleave; \
        (table)->other_reading.one_tile = 1; \
        (table)->name = #isa; \
    } while (0)

#define SPECDEC__KERNEL_ENTRY(isa, name, result, parameters) table->name = specdec__##isa##_##name;
/* Enters dots of float types, which use panels. */
#define SPECDEC__FLOAT_PANELS(isa) \
    do { \
        table->unpack[SPECDEC__TYPE_F32] = specdec__##isa##_unpack_f32; \
        table->unpack[SPECDEC__TYPE_F16] = specdec__##isa##_unpack_f16; \
        table->unpack[SPECDEC__TYPE_BF16] = specdec__##isa##_unpack_bf16; \
        table->dot[SPECDEC__TYPE_F32] = specdec__##isa##_dot_float; \
        table->dot[SPECDEC__TYPE_F16] = specdec__##isa##_dot_float; \
        table->dot[SPECDEC__TYPE_BF16] = specdec__##isa##_dot_float; \
    } while (0)
/* Enters multiply functions of float types, which use tiles directly: for instruction sets of 16 lanes. */
#define SPECDEC__FLOAT_MULTIPLY(isa) \
    do { \
        table->multiply[SPECDEC__TYPE_F32] = specdec__##isa##_multiply_f32; \
        table->multiply[SPECDEC__TYPE_F16] = specdec__##isa##_multiply_f16; \
        table->multiply[SPECDEC__TYPE_BF16] = specdec__##isa##_multiply_bf16; \
    } while (0)
#define SPECDEC__FLOAT_KERNELS(isa) \
    do { \
        table->name = #isa; \
        table->interleave = specdec__quant_interleave; \
        SPECDEC__KERNEL_LOOPS(SPECDEC__KERNEL_ENTRY, isa) \
        table->half_queries = specdec__##isa##_half_queries; \
        table->weigh_codes = specdec__##isa##_weigh_codes; \
        table->activate[SPECDEC__SILU] = table->silu; \
        table->activate[SPECDEC__GELU] = table->gelu; \
        table->activate[SPECDEC__GELU_EXACT] = table->gelu_exact; \
        table->activate[SPECDEC__RELU] = table->relu; \
        table->activate[SPECDEC__CLAMPED_SWIGLU] = table->clamped_swiglu; \
        table->activate[SPECDEC__XIELU] = table->xielu; \
    } while (0)

#ifdef SPECDEC__AVX512
#define SPECDEC__HAS_READINGS 1 /* 1: tables of kernels may have another way to read weights, other_reading */
#else
#define SPECDEC__HAS_READINGS 0
#endif
#define SPECDEC__MEMORY_BOUND_COLUMNS 6 /* with more columns, arithmetic takes longer than reading the weights */

SPECDEC__FOR_SPEED
/* specdec__multiply_function by panels: unpacks and multiplies two tiles at a time, or one. For types of which two
   panels are multiplied at a time, this function prefetches the weights to unpack next. */
static void specdec__kernels_multiply_by_panels(const specdec__kernels *kernels, const specdec__tiles *tiles,
                                                int blocks, specdec__panel *panels, const specdec__columns *x,
                                                int block, int column, int count, float *const *sums)
{
    const specdec__quant_type *type = tiles->type;
    const size_t step = (size_t)(SPECDEC__PANEL_VALUES / type->block) * type->bytes * SPECDEC__ROWS;
    specdec__dot_two_panels_function *pair = SPECDEC__HAS_READINGS && kernels->two_panel_types >> type->number & 1
                                                 ? kernels->dot_two_panels[type->granule == 32]
                                                 : NULL;
    const int side = pair && tiles->tile[1] && count >= 4 ? 2 : 1;
    size_t at, ahead;
    int from, run, t, i;

    for (t = 0; t < 2 && tiles->tile[t]; t++)
        if (!block)
            memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
    for (t = 0; t < 2 && tiles->tile[t]; t += side)
        for (from = 0, at = 0; from < blocks; from += run, at += step) {
            run = specdec__min_int(SPECDEC__PANEL_VALUES / 32, blocks - from);
            for (i = 0; i < side; i++) {
                const unsigned char *tile = tiles->tile[t + i] + at;
                const unsigned char *next = from + run < blocks                  ? tile + step
                                            : side == 1 && !t && tiles->tile[1] ? tiles->tile[1]
                                                                                : tiles->next[i];

                for (ahead = 0; pair && ahead < step; ahead += 64)
                    __builtin_prefetch(next + ahead, 0, 3);
                kernels->unpack[type->number](type, tile, run, panels + i);
            }
            if (side == 2)
                pair(panels, run, x, block + from, column, count, sums);
            else
                kernels->dot[type->number](panels, run, x, block + from, column, count, sums[t]);
        }
}

/* specdec__multiply_function with any table: uses the type's multiply function, or panels. */
static void specdec__kernels_multiply(const specdec__kernels *kernels, const specdec__tiles *tiles, int blocks,
                                      specdec__panel *panels, const specdec__columns *x, int block, int column,
                                      int count, float *const *sums)
{
    const specdec__quant_type *type = tiles->type;

    if (kernels->multiply[type->number]) {
        specdec__tiles one = *tiles;

        one.l1_bytes = kernels->reading.l1_bytes;
        if (SPECDEC__HAS_READINGS && kernels->reading.one_tile && tiles->tile[1] &&
            count <= SPECDEC__MEMORY_BOUND_COLUMNS) {
            one.next[0] = tiles->tile[1];
            one.tile[1] = NULL;
            kernels->multiply[type->number](&one, blocks, panels, x, block, column, count, sums++);
            one.tile[0] = tiles->tile[1];
            one.next[0] = tiles->next[0];
        }
        kernels->multiply[type->number](&one, blocks, panels, x, block, column, count, sums);
        return;
    }
    specdec__kernels_multiply_by_panels(kernels, tiles, blocks, panels, x, block, column, count, sums);
}

SPECDEC__FOR_SIZE
/* Enters plain C for all types into a table; an instruction set keeps it for types that it has no kernel for. */
static void specdec__kernels_enter_scalar_functions(specdec__kernels *table)
{
    specdec__kernels_enter_unpacker(table, specdec__unpack_tile_by_decoder);
    SPECDEC__DOT_KERNELS(table, scalar_dot);
    SPECDEC__FLOAT_PANELS(scalar);
}

/* Fills the table of plain C. */
static void specdec__kernels_scalar(specdec__kernels *table)
{
    specdec__kernels_enter_scalar_functions(table);
    SPECDEC__FLOAT_KERNELS(scalar);
}

/* Tells of an instruction set that every processor has it. */
static int specdec__cpu_always(void) { return 1; }

#ifdef SPECDEC__AVX512
/* Enters functions that multiply any type on every x86-64 processor from 2008 on; wider instruction sets keep them for
   types that they have no kernel for. */
static void specdec__kernels_enter_x86_functions(specdec__kernels *table)
{
    specdec__kernels_enter_unpacker(table, specdec__sse41_unpack_any);
    SPECDEC__FLOAT_PANELS(sse41);
    SPECDEC__DOT_KERNELS(table, sse41_dot);
}

/* Fills the table of SSE4.1. */
static SPECDEC__UNUSED void specdec__kernels_sse41(specdec__kernels *table)
{
    specdec__kernels_enter_x86_functions(table);
    SPECDEC__FLOAT_KERNELS(sse41);
    SPECDEC__TABLE_ENTRY(unpack, Q4_0, specdec__sse41_unpack_Q4_0);
    SPECDEC__TABLE_ENTRY(unpack, Q4_K, specdec__sse41_unpack_Q4_K);
    SPECDEC__TABLE_ENTRY(unpack, Q6_K, specdec__sse41_unpack_Q6_K);
    SPECDEC__TABLE_ENTRY(unpack, Q8_0, specdec__sse41_unpack_Q8_0);
    SPECDEC__TABLE_ENTRY(dot, Q4_0, specdec__sse41_dot_4bit);
    SPECDEC__TABLE_ENTRY(dot, Q4_K, specdec__sse41_dot_4bitm);
    SPECDEC__TABLE_ENTRY(dot, Q6_K, specdec__sse41_dot_6bit);
}

SPECDEC__KERNELS_LINKAGE void specdec__kernels_avx2(specdec__kernels *table);
SPECDEC__KERNELS_LINKAGE void specdec__kernels_avx512(specdec__kernels *table);
#ifdef SPECDEC__AVXVNNI
SPECDEC__KERNELS_LINKAGE void specdec__kernels_avxvnni(specdec__kernels *table);
#endif

#ifndef SPECDEC_KERNELS_APART
/* Enters the functions that AVX2 and AVX-VNNI share. */
static SPECDEC__UNUSED void specdec__kernels_enter_avx2_functions(specdec__kernels *table)
{
    specdec__kernels_enter_x86_functions(table);
    SPECDEC__FLOAT_KERNELS(avx2);
    SPECDEC__FLOAT_MULTIPLY(avx2);
}

/* Fills the table of AVX2. */
void specdec__kernels_avx2(specdec__kernels *table)
{
    if (!SPECDEC__WITH_AVX2)
        return;
    SPECDEC__AVX2_KERNELS(table, avx2);
}

#ifdef SPECDEC__AVXVNNI
/* Fills the table of AVX-VNNI. */
void specdec__kernels_avxvnni(specdec__kernels *table)
{
    if (!SPECDEC__WITH_AVXVNNI)
        return;
    SPECDEC__AVX2_KERNELS(table, avxvnni);
}
#endif

/* Fills the table of AVX-512. */
void specdec__kernels_avx512(specdec__kernels *table)
{
    if (!SPECDEC__WITH_AVX512)
        return;
    specdec__kernels_enter_x86_functions(table);
    SPECDEC__X86_COMMON_TYPES(SPECDEC__X86_MULTIPLY_ENTRY, avx512)
    SPECDEC__X86_RARE_TYPES(SPECDEC__X86_MULTIPLY_ENTRY, avx512)
    SPECDEC__X86_GRID_TYPES(SPECDEC__AVX512_GRID_ENTRY, avx512)
    SPECDEC__X86_DECODED_TYPES(SPECDEC__AVX512_DECODED_ENTRY, avx512)
    SPECDEC__FLOAT_KERNELS(avx512);
    SPECDEC__FLOAT_MULTIPLY(avx512);
    table->interleave = specdec__avx512_interleave;
    table->multiply_upper_plane = SPECDEC__HAS(Q8_0) ? specdec__avx512_multiply_plane : NULL;
    table->multiply_planes = SPECDEC__HAS(Q8_0) ? specdec__avx512_multiply_planes : NULL;
    SPECDEC__TABLE_ENTRY(rows, Q4_0, specdec__avx512_rows_Q4_0);
    SPECDEC__TABLE_ENTRY(rows, Q8_0, specdec__avx512_rows_Q8_0);
    SPECDEC__TABLE_ENTRY(rows, Q4_K, specdec__avx512_rows_Q4_K);
    SPECDEC__TABLE_ENTRY(rows, Q6_K, specdec__avx512_rows_Q6_K);
    table->reading.l1_bytes = SPECDEC__PREFETCH_BYTES;
    table->other_reading.l1_bytes = SPECDEC__PREFETCH_L1_BYTES;
}
#endif

/* The registers that the instruction CPUID sets. */
typedef struct specdec__cpuid {
    unsigned eax, ebx, ecx, edx; /* the registers of these names */
} specdec__cpuid;

/* A leaf of CPUID; zeros if the processor does not have it. */
static specdec__cpuid specdec__cpu_read_cpuid_leaf(unsigned leaf, unsigned subleaf)
{
    specdec__cpuid r;

    if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx))
        memset(&r, 0, sizeof r);
    return r;
}

/* The vector registers that the operating system saves: bits of XCR0. */
static unsigned specdec__cpu_registers_saved_by_system(void)
{
    unsigned low, high;

    if (!(specdec__cpu_read_cpuid_leaf(1, 0).ecx & 1u << 27))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Whether the processor has SSE4.1 and SSSE3. */
static int specdec__cpu_sse41(void)
{
    const unsigned wanted = 1u << 9 | 1u << 19; /* ssse3, sse4.1 */

    return (specdec__cpu_read_cpuid_leaf(1, 0).ecx & wanted) == wanted;
}

/* Whether the processor has AVX2, FMA and F16C, and the system saves their registers. */
static int specdec__cpu_avx2(void)
{
    const unsigned wanted = 1u << 12 | 1u << 29; /* fma, f16c */

    return SPECDEC__OS_ALIGNS_WIDE_VECTORS && (specdec__cpu_registers_saved_by_system() & 6) == 6 &&
           (specdec__cpu_read_cpuid_leaf(1, 0).ecx & wanted) == wanted &&
           (specdec__cpu_read_cpuid_leaf(7, 0).ebx & 1u << 5);
}

#ifdef SPECDEC__AVXVNNI
/* Whether the processor has AVX-VNNI besides AVX2. */
static int specdec__cpu_avxvnni(void)
{
    return specdec__cpu_avx2() && specdec__cpu_read_cpuid_leaf(7, 0).eax >= 1 &&
           (specdec__cpu_read_cpuid_leaf(7, 1).eax & 1u << 4);
}
#endif

/* Whether the processor has AVX-512 with VNNI besides AVX2, and the system saves its registers. */
static int specdec__cpu_avx512(void)
{
    const unsigned wanted = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* avx512 f dq bw vl */
    specdec__cpuid leaf = specdec__cpu_read_cpuid_leaf(7, 0);

    return specdec__cpu_avx2() && (specdec__cpu_registers_saved_by_system() & 0xE6) == 0xE6 &&
           (leaf.ebx & wanted) == wanted && (leaf.ecx & 1u << 11);
}
#endif

#ifdef SPECDEC__NEON
#define SPECDEC__NEON_ENTRY(name, unpack) SPECDEC__TABLE_ENTRY(multiply, name, specdec__neon_multiply_##name);

/* Fills the table of NEON. */
static void specdec__kernels_neon(specdec__kernels *table)
{
    specdec__kernels_enter_unpacker(table, specdec__neon_unpack_any);
    SPECDEC__FLOAT_KERNELS(neon);
    SPECDEC__FLOAT_PANELS(scalar);
    SPECDEC__FLOAT_MULTIPLY(neon);
    SPECDEC__DOT_KERNELS(table, neon_dot);
    SPECDEC__TABLE_ENTRY(unpack, Q4_0, specdec__neon_unpack_q4_0);
    SPECDEC__TABLE_ENTRY(unpack, Q4_1, specdec__neon_unpack_q4_1);
    SPECDEC__TABLE_ENTRY(unpack, Q5_0, specdec__neon_unpack_q5_0);
    SPECDEC__TABLE_ENTRY(unpack, Q5_1, specdec__neon_unpack_q5_1);
    SPECDEC__TABLE_ENTRY(unpack, Q8_0, specdec__neon_unpack_q8_0);
    SPECDEC__TABLE_ENTRY(unpack, Q2_K, specdec__neon_unpack_q2_k);
    SPECDEC__TABLE_ENTRY(unpack, Q3_K, specdec__neon_unpack_q3_k);
    SPECDEC__TABLE_ENTRY(unpack, IQ2_XXS, specdec__neon_unpack_iq2_xxs);
    SPECDEC__TABLE_ENTRY(unpack, IQ2_XS, specdec__neon_unpack_iq2_xs);
    SPECDEC__TABLE_ENTRY(unpack, IQ2_S, specdec__neon_unpack_iq2_s);
    SPECDEC__TABLE_ENTRY(unpack, IQ3_XXS, specdec__neon_unpack_iq3_xxs);
    SPECDEC__TABLE_ENTRY(unpack, IQ3_S, specdec__neon_unpack_iq3_s);
    SPECDEC__TABLE_ENTRY(unpack, Q4_K, specdec__neon_unpack_q4_k);
    SPECDEC__TABLE_ENTRY(unpack, Q5_K, specdec__neon_unpack_q5_k);
    SPECDEC__TABLE_ENTRY(unpack, Q6_K, specdec__neon_unpack_q6_k);
    SPECDEC__TABLE_ENTRY(unpack, IQ4_NL, specdec__neon_unpack_iq4_nl);
    SPECDEC__TABLE_ENTRY(unpack, IQ4_XS, specdec__neon_unpack_iq4_xs);
    SPECDEC__TABLE_ENTRY(unpack, MXFP4, specdec__neon_unpack_mxfp4);
    SPECDEC__TABLE_ENTRY(unpack, Q1_0, specdec__neon_unpack_q1_0);
    SPECDEC__TABLE_ENTRY(unpack, Q2_0, specdec__neon_unpack_q2_0);
    SPECDEC__TABLE_ENTRY(unpack, TQ2_0, specdec__neon_unpack_tq2_0);
    SPECDEC__NEON_TYPES(SPECDEC__NEON_ENTRY)
}

#define SPECDEC__DOTPROD_ENTRY(name, ...) SPECDEC__TABLE_ENTRY(multiply, name, specdec__dotprod_multiply_##name);
#define SPECDEC__I8MM_ENTRY(name, ...) SPECDEC__TABLE_ENTRY(multiply, name, specdec__i8mm_multiply_##name);

/* Fills the table of NEON with dot products. */
static void specdec__kernels_dotprod(specdec__kernels *table)
{
    specdec__kernels_neon(table);
    SPECDEC__DOT_KERNELS(table, dotprod_dot);
    SPECDEC__DOTPROD_TYPES(SPECDEC__DOTPROD_ENTRY)
    table->weigh_codes = specdec__dotprod_weigh_codes;
    table->name = "dotprod";
}

/* Fills the table of NEON with matrix products. */
static void specdec__kernels_i8mm(specdec__kernels *table)
{
    specdec__kernels_dotprod(table);
    SPECDEC__I8MM_TYPES(SPECDEC__I8MM_ENTRY)
    table->name = "i8mm";
}

/* Whether the processor has dot products. Yes if the compiler was told so; else the system is asked. */
static int specdec__cpu_dotprod(void)
{
#if defined(__ARM_FEATURE_DOTPROD)
    return 1;
#else
    return (specdec__os_arm_features(0) & 1ul << 20) != 0; /* asimddp */
#endif
}

/* Whether the processor has matrix products (i8mm). Yes if the compiler was told so; else the system is asked. */
static int specdec__cpu_i8mm(void)
{
#if defined(__ARM_FEATURE_MATMUL_INT8)
    return 1;
#else
    return (specdec__os_arm_features(1) & 1ul << 13) != 0; /* i8mm */
#endif
}
#endif

#ifdef SPECDEC__LINE_VECTOR
/* Enters the unpackers of >>kernel/lines, and the dots of types with 8-bit codes. */
static void specdec__kernels_enter_line_functions(specdec__kernels *table, specdec__dot_function *wide16,
                                                  specdec__dot_function *wide32)
{
    const specdec__quant_type *type = specdec__quant_types, *end = type + SPECDEC__COUNT(specdec__quant_types);

    specdec__kernels_enter_unpacker(table, specdec__line_unpack_tile);
    for (; type < end; type++)
        if (type->granule && type->bits == 8)
            table->dot[type->number] = type->granule == 16 ? wide16 : wide32;
}

#define SPECDEC__LINE_KERNELS(table, isa) \
    do { \
        SPECDEC__DOT_KERNELS(table, isa##_dot); \
        specdec__kernels_enter_line_functions(table, specdec__##isa##_dot_16_wide, specdec__##isa##_dot_32_wide); \
        SPECDEC__FLOAT_KERNELS(isa); \
    } while (0)
#endif

#ifdef SPECDEC__NEON32
/* Fills the table of NEON on 32-bit ARM. */
static void specdec__kernels_neon32(specdec__kernels *table)
{
    SPECDEC__LINE_KERNELS(table, neon32);
    SPECDEC__FLOAT_PANELS(neon32);
}

/* Whether the processor has NEON and VFPv4. Yes if the compiler was told so; else the system is asked. */
static int specdec__cpu_neon32(void)
{
#ifdef SPECDEC__NEON32_ASKED
    const unsigned long wanted = 1ul << 12 | 1ul << 16; /* neon, vfpv4 */

    return (specdec__os_arm_features(0) & wanted) == wanted;
#else
    return 1;
#endif
}
#endif

#ifdef SPECDEC__RVV
/* Fills the table of RISC-V vectors. */
static void specdec__kernels_rvv(specdec__kernels *table)
{
    SPECDEC__LINE_KERNELS(table, rvv);
    SPECDEC__FLOAT_PANELS(scalar);
    SPECDEC__FLOAT_MULTIPLY(rvv);
}
#endif

/* Fills the table of an instruction set. */
typedef void specdec__fill_function(specdec__kernels *table);

/* The instruction sets from the slowest to the fastest. fill: NULL if this build leaves one out; no code of it remains
   then. */
static const struct specdec__isa {
    const char *name;
    int (*present)(void); /* whether the processor has it */
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
#ifdef SPECDEC__NEON32
    {"neon32", specdec__cpu_neon32, SPECDEC__WITH_NEON32 ? specdec__kernels_neon32 : NULL},
#endif
#ifdef SPECDEC__RVV
    {"rvv", specdec__cpu_always, SPECDEC__WITH_RVV ? specdec__kernels_rvv : NULL},
#endif
};

/* Fills the table for an instruction set by name; NULL: for the best one that the processor has. Errors:
   UNSUPPORTED. */
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
SPECDEC__FOR_SPEED
