/* =====================================================================================================================
 * >>base/begin: warnings and compiler options for everything below; >>base/end restores them.
 * ================================================================================================================== */

#pragma once
#ifndef SPECDEC_IMPLEMENTATION /* parts only */
#define SPECDEC_IMPLEMENTATION /* parts only */
#endif /* parts only */
#define SPECDEC_FILE "lanes_rows.h" /* parts only */
#include "../interface/layout.h"

/* Beside the implementation, callers have its structures. */
#undef specdec_memory_needed
#undef specdec_init
#undef specdec_model_memory_needed
#undef specdec_model_init

/* Warnings that this file switches off. They are in no usual set, but a project may enable them: names with two
   underscores are private to this file; casts and NULL are those of C; floats are compared with zero on purpose. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function" /* of parts that a test includes, parts only */
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

/* No compiler may fuse a product with a sum by itself: that would change bits. The previous setting is restored at the
   end of the file; clang can save it on x86 only. */
#if defined(__clang__)
#if __clang_major__ >= 12 && defined(__x86_64__)
#pragma float_control(push)
#endif
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
/* Firmware in C does not unwind the stack: tables for debuggers go into a section that is not loaded. gcc has no pragma
   for that. */
#if defined(SPECDEC_FREESTANDING) && defined(__OPTIMIZE_SIZE__) && defined(__ELF__) && !defined(__cplusplus) && \
    !defined(__EXCEPTIONS)
__asm__(".cfi_sections .debug_frame");
#endif
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
/* For size, gcc 12 and newer have shorter, slower ways to load constants and to store zeros, which -Os leaves out. (Not
   on 32-bit ARM: see SPECDEC__FOR_SIZE.) */
#if __GNUC__ >= 12 && !defined(__arm__)
#define SPECDEC__SMALLEST "Oz"
#else
#define SPECDEC__SMALLEST "Os"
#endif
#define SPECDEC__PRAGMA(text) _Pragma(#text)
#define SPECDEC__OPTIMIZE(...) SPECDEC__PRAGMA(GCC optimize(__VA_ARGS__))
/* Code for size without kernels is 3.5 KB smaller without these passes. */
#if defined(__OPTIMIZE_SIZE__) && defined(SPECDEC_NO_SIMD)
SPECDEC__OPTIMIZE(SPECDEC__SMALLEST)
#pragma GCC optimize("no-move-loop-invariants", "no-inline-functions-called-once", "no-tree-loop-im", "no-caller-saves")
#pragma GCC optimize("no-optimize-sibling-calls", "no-tree-dominator-opts")
#endif
#endif

/* The file name under which this file includes itself, once for each instruction set. */
#ifdef SPECDEC_FILE
#define SPECDEC__FILE SPECDEC_FILE
#elif defined(__FILE_NAME__)
#define SPECDEC__FILE __FILE_NAME__
#else
#define SPECDEC__FILE "specdec.h"
#endif
