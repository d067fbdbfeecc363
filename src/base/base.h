/* =====================================================================================================================
 * >>base/base: compiler facts, checked arithmetic, byte order, noise, the bump arena, error text, the log.
 * ================================================================================================================== */

#pragma once
#include "begin.h"

#include <stdarg.h>
#include <string.h>
#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD)
/* gcc 12 wrongly warns of uninitialised variables in its own AVX-512 header in C++ (GCC bug 105593). */
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
#elif defined(__arm__) && defined(__ARM_FP) && defined(__ARMEL__) && !defined(SPECDEC_NO_SIMD) && \
    ((defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA)) || \
     (!defined(__clang__) && !defined(SPECDEC_FREESTANDING) && \
      (__ARM_ARCH == 6 || (__ARM_ARCH == 7 && __ARM_ARCH_PROFILE != 'M'))))
/* NEON on 32-bit ARM. gcc can compile functions for NEON whatever the command line says; whether to call them is
   decided at run time, so this is left out on systems where the processor's features cannot be asked for. clang
   compiles them only if the command line enables NEON and VFPv4 (-mfpu=neon-vfpv4). */
#define SPECDEC__NEON32
#if !(defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA))
#define SPECDEC__NEON32_ASKED
/* The target names no "arch=...": gcc inlines no function into one whose target lacks a feature of the command line. */
#pragma GCC push_options
#pragma GCC target("fpu=neon-vfpv4")
#endif
#include <arm_neon.h>
#ifdef SPECDEC__NEON32_ASKED
#pragma GCC pop_options
#endif
#elif defined(__riscv_v) && defined(__clang__) && !defined(SPECDEC_NO_SIMD)
#if __has_builtin(__builtin_elementwise_fma) /* clang 17 and newer */
/* RISC-V vectors are chosen on the command line (-march=rv64gcv): the compiler then uses them in all functions. */
#define SPECDEC__RVV
#include <riscv_vector.h>
#endif
#endif

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "specdec.h: -ffast-math changes results; every promise of this file rests on IEEE arithmetic. Remove it."
#endif
/* Value 16 means that only _Float16 is evaluated with excess precision. */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "specdec.h: floats are evaluated with excess precision here; on 32-bit x86 add -msse2 -mfpmath=sse."
#endif
#if !defined(__GNUC__)
#error "specdec.h needs gcc or clang (vector attributes, atomics)."
#endif

/* SPECDEC__INLINE: for small functions that are called often where time is spent. They are always inlined, except in
   two kinds of builds: for size without kernels, where the compiler decides, and without optimisation, so that a
   debugger can enter them and frames stay small. */
#define SPECDEC__UNUSED __attribute__((unused))
#if defined(SPECDEC_KERNELS) || defined(SPECDEC_KERNELS_APART) /* each half of a build in two halves leaves some
                                                                  functions uncalled */
#define SPECDEC__UNUSED_IN_HALF SPECDEC__UNUSED
#else
#define SPECDEC__UNUSED_IN_HALF
#endif
#if !defined(__OPTIMIZE__) || (defined(__OPTIMIZE_SIZE__) && defined(SPECDEC_NO_SIMD))
#define SPECDEC__INLINE static inline SPECDEC__UNUSED_IN_HALF
#else
#define SPECDEC__INLINE static inline __attribute__((always_inline)) SPECDEC__UNUSED_IN_HALF
#endif
/* SPECDEC__INLINE_WORD: for loads and stores of a word at any address, on processors where they are one instruction.
   They are always inlined: gcc at -Os would not inline them, as it counts their byte operations before it joins them to
   one. */
#if defined(__OPTIMIZE__) && (defined(__x86_64__) || defined(__aarch64__) || \
                              (defined(__ARM_FEATURE_UNALIGNED) && defined(__ARMEL__)))
#define SPECDEC__INLINE_WORD static inline __attribute__((always_inline)) SPECDEC__UNUSED_IN_HALF
#else
#define SPECDEC__INLINE_WORD SPECDEC__INLINE
#endif
/* For a function with a large stack frame: if inlined, it would enlarge the frame of its caller. */
#define SPECDEC__NOINLINE __attribute__((noinline)) SPECDEC__UNUSED_IN_HALF
/* Kernels are compiled without sanitizers, which would take minutes and a gigabyte for their unrolled loops; the tests
   that compare kernels bit for bit cover their loads and integers. A test may define SPECDEC_SANITIZE_KERNELS. */
#if defined(SPECDEC_SANITIZE_KERNELS) || (!defined(__clang__) && __GNUC__ < 8)
#define SPECDEC__UNSANITIZED
#else
#define SPECDEC__UNSANITIZED __attribute__((no_sanitize("address", "undefined")))
#endif
/* Code between SPECDEC__FOR_SIZE and SPECDEC__FOR_SPEED runs once for a model, an engine or a call. gcc compiles it for
   size, without five passes that make code longer: those that move values out of loops, duplicate code to save a jump,
   or restore registers before each last call. Not on 32-bit ARM: there gcc would not align strings that functions
   compiled for speed take to be aligned. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(__arm__)
#define SPECDEC__FOR_SIZE \
    SPECDEC__PRAGMA(GCC push_options) \
    SPECDEC__OPTIMIZE(SPECDEC__SMALLEST, "no-move-loop-invariants", "no-tree-loop-im", "no-caller-saves", \
                      "no-optimize-sibling-calls", "no-tree-dominator-opts")
#define SPECDEC__FOR_SPEED SPECDEC__PRAGMA(GCC pop_options)
#else
#define SPECDEC__FOR_SIZE
#define SPECDEC__FOR_SPEED
#endif
/* SPECDEC__RARELY_RUN: the same for plain C that only x86-64 processors from before 2008 run, as all newer ones have
   kernels. Small functions of such code are not inlined. */
#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD)
#define SPECDEC__RARELY_RUN SPECDEC__FOR_SIZE
#define SPECDEC__RARELY_RUN_END SPECDEC__FOR_SPEED
#define SPECDEC__RARELY_RUN_INLINE static SPECDEC__NOINLINE
#else
#define SPECDEC__RARELY_RUN_INLINE SPECDEC__INLINE
#define SPECDEC__RARELY_RUN
#define SPECDEC__RARELY_RUN_END
#endif
#define SPECDEC__COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SPECDEC__STATIC_ASSERT(name, condition) \
    typedef char specdec__static_assert_##name[(condition) ? 1 : -1] SPECDEC__UNUSED
#define SPECDEC__CACHE_LINE 64 /* bytes of a cache line of the processor */

/* 1 if this build can save sequences. */
#ifdef SPECDEC_NO_SAVE
#define SPECDEC__HAS_SAVING 0 /* this build leaves out: saving of sequences */
#else
#define SPECDEC__HAS_SAVING 1 /* this build has: saving of sequences */
#endif

/* 1 if this build has chat formats. */
#ifdef SPECDEC_NO_CHAT
#define SPECDEC__HAS_CHAT_FORMATS 0 /* this build leaves out: chat formats */
#else
#define SPECDEC__HAS_CHAT_FORMATS 1 /* this build has: chat formats */
#endif

/* 1 if this build reads chat templates, to find a model's chat format. */
#if defined(SPECDEC_NO_CHAT) || defined(SPECDEC_NO_TEMPLATES) || defined(SPECDEC_FREESTANDING)
#define SPECDEC__HAS_CHAT_TEMPLATES 0 /* this build leaves out: reading of chat templates */
#else
#define SPECDEC__HAS_CHAT_TEMPLATES 1 /* this build has: reading of chat templates */
#endif

/* 1 if this build has drafters that read the target's hidden states: heads, MTP and EAGLE layers. */
#ifdef SPECDEC_NO_HEADS
#define SPECDEC__HAS_STATE_DRAFTERS 0 /* this build leaves out: drafters that read hidden states of the target */
#else
#define SPECDEC__HAS_STATE_DRAFTERS 1 /* this build has: drafters that read hidden states of the target */
#endif

/* 1 if this build has TriForce: drafting with the target's weights and a small cache. */
#ifdef SPECDEC_NO_TRIFORCE
#define SPECDEC__HAS_TRIFORCE 0 /* this build leaves out: the drafter TriForce */
#else
#define SPECDEC__HAS_TRIFORCE 1 /* this build has: the drafter TriForce */
#endif

/* 1 if this build has n-gram drafters. */
#ifdef SPECDEC_NO_NGRAM
#define SPECDEC__HAS_NGRAM_DRAFTERS 0 /* this build leaves out: n-gram drafters */
#else
#define SPECDEC__HAS_NGRAM_DRAFTERS 1 /* this build has: n-gram drafters */
#endif

/* 1 if this build has constraints (grammars, schemas). */
#ifdef SPECDEC_NO_CONSTRAINTS
#define SPECDEC__HAS_CONSTRAINTS 0 /* this build leaves out: grammars and JSON schemas */
#else
#define SPECDEC__HAS_CONSTRAINTS 1 /* this build has: grammars and JSON schemas */
#endif

/* 1 if this build runs mixtures of experts. */
#ifdef SPECDEC_NO_EXPERTS
#define SPECDEC__HAS_EXPERTS 0 /* this build leaves out: mixtures of experts */
#else
#define SPECDEC__HAS_EXPERTS 1 /* this build has: mixtures of experts */
#endif

/* 1 if this build runs recurrent layers. */
#ifdef SPECDEC_NO_RECURRENT
#define SPECDEC__HAS_RECURRENT_LAYERS 0 /* this build leaves out: recurrent layers */
#else
#define SPECDEC__HAS_RECURRENT_LAYERS 1 /* this build has: recurrent layers */
#endif

/* 1 if this build has other drafters than a draft model. */
#define SPECDEC__OTHER_DRAFTERS \
    (SPECDEC__HAS_STATE_DRAFTERS || SPECDEC__HAS_TRIFORCE || SPECDEC__HAS_NGRAM_DRAFTERS || SPECDEC__HAS_CONSTRAINTS)

/* 1 if an engine may have several sequences. */
#ifdef SPECDEC_NO_SEQUENCES
#define SPECDEC__HAS_MANY_SEQUENCES 0 /* this build leaves out: engines with several sequences */
#else
#define SPECDEC__HAS_MANY_SEQUENCES 1 /* this build has: engines with several sequences */
#endif

/* 1 if this build has the acceptance rules that need distributions: all but coupled and greedy. */
#ifdef SPECDEC_NO_VERIFIERS
#define SPECDEC__HAS_DISTRIBUTION_VERIFIERS 0 /* this build leaves out: verifiers that need draft distributions */
#else
#define SPECDEC__HAS_DISTRIBUTION_VERIFIERS 1 /* this build has: verifiers that need draft distributions */
#endif

/* 1 if the target's layers may lie on several machines. */
#ifdef SPECDEC_CLUSTER
#define SPECDEC__HAS_CLUSTER 1 /* this build has: targets whose layers lie on several machines */
#else
#define SPECDEC__HAS_CLUSTER 0 /* this build leaves out: targets whose layers lie on several machines */
#endif

/* 1 if the target may have another lane than the caller's threads: the ranks of a cluster, or the lane of a test or of
   specdec-sim. 0 leaves out all code for other lanes. */
#ifndef SPECDEC__PIPE
#define SPECDEC__PIPE SPECDEC__HAS_CLUSTER
#endif

/* The compiler's check of printf formats. In gcc for Windows, the one named "printf" does not know %zu. */
#if defined(__clang__)
#define SPECDEC__PRINTF printf
#else
#define SPECDEC__PRINTF gnu_printf
#endif

/* Unrolls the loop that follows, whose number of rounds is a constant, at most 16. */
#if defined(__OPTIMIZE_SIZE__)
#define SPECDEC__UNROLL
#elif defined(__clang__)
#define SPECDEC__UNROLL _Pragma("clang loop unroll(full)")
#else
#define SPECDEC__UNROLL _Pragma("GCC unroll 16")
#endif

/* The name specdec__<isa>_<name> of a function of an instruction set. */
#define SPECDEC__PASTE_NAMES(isa, name) specdec__##isa##_##name
#define SPECDEC__PASTE(isa, name) SPECDEC__PASTE_NAMES(isa, name)

SPECDEC__STATIC_ASSERT(byte_is_8_bits, (unsigned char)-1 == 255);
SPECDEC__STATIC_ASSERT(float_is_32_bits, sizeof(float) == 4 && sizeof(double) == 8);
SPECDEC__STATIC_ASSERT(int_is_32_bits, sizeof(int) == 4);

typedef specdec_bytes specdec__bytes;

/* Returns a + b, or SIZE_MAX on overflow, so that a size that wraps never looks small. */
SPECDEC__INLINE size_t specdec__size_add(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

/* Returns a * b, or SIZE_MAX on overflow. */
SPECDEC__INLINE size_t specdec__size_multiply(size_t a, size_t b)
{
    return b && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

SPECDEC__INLINE int specdec__min_int(int a, int b) { return a < b ? a : b; }
SPECDEC__INLINE int specdec__max_int(int a, int b) { return a > b ? a : b; }
/* Returns the smallest multiple of `multiple` that is not below value (>= 0). */
SPECDEC__INLINE int specdec__round_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Defines function(heap, key, count, at), which restores a binary heap of `count` elements after heap[at] has changed,
   by sinking that element to its place. The root is the element that comes last in the order: before(key, a, b) is 1 if
   a comes before b. key: an array by which elements are compared, or NULL. */
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

/* Functions that load and store little-endian integers at any address, on processors of any byte order. */
SPECDEC__INLINE uint16_t specdec__load_u16(const void *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint16_t)(b[0] | (unsigned)b[1] << 8);
}

SPECDEC__INLINE_WORD uint32_t specdec__load_u32(const void *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

SPECDEC__INLINE_WORD uint64_t specdec__load_u64(const void *at)
{
    return (uint64_t)specdec__load_u32(at) | (uint64_t)specdec__load_u32((const unsigned char *)at + 4) << 32;
}

SPECDEC__INLINE_WORD void specdec__store_u16(void *at, uint16_t value)
{
    unsigned char *b = (unsigned char *)at;
    b[0] = (unsigned char)value;
    b[1] = (unsigned char)(value >> 8);
}

SPECDEC__INLINE_WORD void specdec__store_u32(void *at, uint32_t value)
{
    specdec__store_u16(at, (uint16_t)value);
    specdec__store_u16((unsigned char *)at + 2, (uint16_t)(value >> 16));
}

SPECDEC__INLINE_WORD void specdec__store_u64(void *at, uint64_t value)
{
    specdec__store_u32(at, (uint32_t)value);
    specdec__store_u32((unsigned char *)at + 4, (uint32_t)(value >> 32));
}

#define SPECDEC__EMPTY_HASH 0xcbf29ce484222325u /* where specdec__hash of bytes begins */

/* Returns the 64-bit FNV-1a hash (Fowler, Noll, Vo) of `count` bytes. hash: the hash of the bytes before these, or
   SPECDEC__EMPTY_HASH. Changing a single byte always changes the hash. */
SPECDEC__INLINE uint64_t specdec__hash(uint64_t hash, const unsigned char *bytes, size_t count)
{
    while (count--)
        hash = (hash ^ *bytes++) * 0x100000001b3u;
    return hash;
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

/* Hides from the compiler how a double was computed, so that it cannot fuse that product with a sum. */
#if defined(__x86_64__)
#define SPECDEC__OPAQUE(value) __asm__("" : "+x"(value))
#elif defined(__aarch64__)
#define SPECDEC__OPAQUE(value) __asm__("" : "+w"(value))
#else
#define SPECDEC__OPAQUE(value) __asm__("" : "+m"(value))
#endif

/* Returns a * b, rounded: no compiler can fuse this product with a sum that it is added to, whatever its flags. */
SPECDEC__INLINE double specdec__product(double a, double b)
{
    double product = a * b;

    SPECDEC__OPAQUE(product);
    return product;
}

SPECDEC__INLINE float specdec__load_f32(const void *at) { return specdec__float_from_bits(specdec__load_u32(at)); }

/* For functions with loops that gcc does not vectorise at -O2. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#define SPECDEC__VECTORISE __attribute__((optimize("tree-vectorize", "vect-cost-model=dynamic", "fp-contract=off")))
#else
#define SPECDEC__VECTORISE
#endif

/* A vector of two doubles. SPECDEC__LARGER_PAIR and SPECDEC__SMALLER_PAIR are the element-wise maximum and minimum of
   two such vectors: a > b ? a : b and a < b ? a : b. */
typedef double specdec__pair __attribute__((vector_size(16)));

#if defined(__SSE2__) /* gcc does not find these instructions by itself */
#define SPECDEC__LARGER_PAIR(a, b) __builtin_ia32_maxpd((a), (b))
#define SPECDEC__SMALLER_PAIR(a, b) __builtin_ia32_minpd((a), (b))
#else
typedef int64_t specdec__pair_bits __attribute__((vector_size(16)));
#define SPECDEC__LARGER_PAIR(a, b) specdec__select_doubles((specdec__pair_bits)((a) > (b)), (a), (b))
#define SPECDEC__SMALLER_PAIR(a, b) specdec__select_doubles((specdec__pair_bits)((a) < (b)), (a), (b))

/* Returns the elements of a where the mask is set, and those of b elsewhere. */
SPECDEC__INLINE specdec__pair specdec__select_doubles(specdec__pair_bits mask, specdec__pair a, specdec__pair b)
{
    return (specdec__pair)((mask & (specdec__pair_bits)a) | (~mask & (specdec__pair_bits)b));
}
#endif

/* A vector of four 32-bit words. SPECDEC__SHUFFLE_WORDS is the vector of four of the eight words of a and b, by
   constant indices. */
typedef uint32_t specdec__words __attribute__((vector_size(16)));

#if defined(__clang__) || __GNUC__ >= 12
#define SPECDEC__SHUFFLE_WORDS(a, b, i, j, k, l) __builtin_shufflevector((a), (b), (i), (j), (k), (l))
#else
#define SPECDEC__SHUFFLE_WORDS(a, b, i, j, k, l) specdec__select_four_words((a), (b), (i), (j), (k), (l))

SPECDEC__INLINE specdec__words specdec__select_four_words(specdec__words a, specdec__words b, uint32_t i, uint32_t j,
                                                          uint32_t k, uint32_t l)
{
    const specdec__words places = {i, j, k, l};
    return __builtin_shuffle(a, b, places);
}
#endif

/* Defines a function that returns every second byte, or 16-bit half, of vector a and then of vector b: the even ones
   (0, 2, 4, ..) or the odd ones. */
typedef uint8_t specdec__bytes16 __attribute__((vector_size(16)));
typedef uint16_t specdec__halves8 __attribute__((vector_size(16)));

#if defined(__clang__) || __GNUC__ >= 12
#define SPECDEC__EVERY_SECOND(name, vector, ...) \
    SPECDEC__INLINE specdec__words name(specdec__words a, specdec__words b) \
    { \
        return (specdec__words)__builtin_shufflevector((vector)a, (vector)b, __VA_ARGS__); \
    }
#else
#define SPECDEC__EVERY_SECOND(name, vector, ...) \
    SPECDEC__INLINE specdec__words name(specdec__words a, specdec__words b) \
    { \
        const vector places = {__VA_ARGS__}; \
        return (specdec__words)__builtin_shuffle((vector)a, (vector)b, places); \
    }
#endif
SPECDEC__EVERY_SECOND(specdec__even_bytes, specdec__bytes16, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
SPECDEC__EVERY_SECOND(specdec__odd_bytes, specdec__bytes16, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
SPECDEC__EVERY_SECOND(specdec__even_halves, specdec__halves8, 0, 2, 4, 6, 8, 10, 12, 14)
SPECDEC__EVERY_SECOND(specdec__odd_halves, specdec__halves8, 1, 3, 5, 7, 9, 11, 13, 15)

/* Returns a bijection of 64-bit numbers: each output bit depends on every bit of x (the finaliser of SplitMix64,
   Steele, Lea and Flood 2014, with Stafford's constants). */
SPECDEC__INLINE uint64_t specdec__mix_bits(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

#define SPECDEC__NOISE_TOKEN_STEP 0x9e3779b97f4a7c15u /* added for each token id */
#define SPECDEC__NOISE_MAXIMUM 22.1808f /* upper bound of Gumbel noise made of 32 bits: 32 ln 2 and some rounding */

/* Returns 64 random bits for a token id. row: random bits of the row of logits (a seed and a position); see
   specdec__sample_noise_of_position. */
SPECDEC__INLINE uint64_t specdec__noise_bits_of_token(uint64_t row, uint32_t token)
{
    return specdec__mix_bits(row + (uint64_t)token * SPECDEC__NOISE_TOKEN_STEP);
}

SPECDEC__FOR_SIZE
/* With SPECDEC_FENCE and the address sanitizer, every array of the arena has bytes behind it that must not be
   touched. */
#ifdef SPECDEC_FENCE
    #include <sanitizer/asan_interface.h>
    #define SPECDEC__FENCE_BYTES SPECDEC_FENCE
    #define SPECDEC__FENCED(array, bytes) \
        (ASAN_UNPOISON_MEMORY_REGION(array, bytes), ASAN_POISON_MEMORY_REGION((array) + (bytes), SPECDEC_FENCE))
#else
    #define SPECDEC__FENCE_BYTES 0
    #define SPECDEC__FENCED(array, bytes) ((void)0)
#endif

/* A bump arena over the caller's block. With base == NULL it only counts: the same layout code computes the size of an
   engine, byte for byte, and later fills the engine's block. */
typedef struct specdec__arena {
    unsigned char *base; /* the caller's block; NULL: the arena only counts bytes */
    size_t size;         /* bytes at base */
    size_t used;         /* bytes taken so far; SIZE_MAX once a request could not be met */
} specdec__arena;

/* Takes memory for `count` items of item_size bytes from the arena, not zeroed. align: a power of two. Returns NULL
   while counting, or when the arena is full. */
static SPECDEC__UNUSED void *specdec__arena_reserve(specdec__arena *arena, size_t count, size_t item_size, size_t align)
{
    size_t bytes = specdec__size_multiply(count, item_size);
    size_t from = specdec__size_add(arena->used, align - 1) & ~(align - 1);
    size_t end = specdec__size_add(from, specdec__size_add(bytes, SPECDEC__FENCE_BYTES));

    if (arena->used == SIZE_MAX || end == SIZE_MAX || (arena->base && end > arena->size)) {
        arena->used = SIZE_MAX;
        return NULL;
    }
    arena->used = end;
    if (!arena->base)
        return NULL;
    SPECDEC__FENCED(arena->base + from, bytes);
    return arena->base + from;
}

/* Takes memory for `count` items of item_size bytes from the arena, zeroed; otherwise as specdec__arena_reserve. */
static SPECDEC__UNUSED void *specdec__arena_take(specdec__arena *arena, size_t count, size_t item_size, size_t align)
{
    void *room = specdec__arena_reserve(arena, count, item_size, align);

    if (room)
        memset(room, 0, count * item_size);
    return room;
}

/* Rewinds the arena to its first `from` bytes: memory taken from now on overlaps the memory that was taken behind them.
   Returns how many bytes were taken before, for specdec__arena_skip_to. */
static SPECDEC__UNUSED size_t specdec__arena_rewind(specdec__arena *arena, size_t from)
{
    const size_t end = arena->used;

    if (end != SIZE_MAX && !SPECDEC__FENCE_BYTES)
        arena->used = from;
    return end;
}

/* Advances the arena, so that memory taken from now on lies behind the first `end` bytes of its block. */
static SPECDEC__UNUSED void specdec__arena_skip_to(specdec__arena *arena, size_t end)
{
    if (arena->used < end)
        arena->used = end;
}

/* Takes zeroed memory for an array of count elements of a type, on a cache line of its own. */
#define SPECDEC__TAKE(arena, type, count) \
    ((type *)specdec__arena_take((arena), (size_t)(count), sizeof(type), SPECDEC__CACHE_LINE))

/* Texts of a row of a table, by name: a row lists the texts that it has, each as NAME("..."), where NAME(text) is
   defined as SPECDEC__ROW_TEXT("a letter", text). The row is one string: the letter, the text and a zero byte for each
   text, and a zero byte behind the last one. */
#define SPECDEC__ROW_TEXT(letter, text) letter text "\0"
#define SPECDEC__ROW_COLUMN(NAME) (*NAME("")) /* the letter of a column */

/* Text number `index` of a column of a row; NULL: the row has no such text. */
static const char *specdec__row_text_of_column(const char *row, char column, int index)
{
    for (; *row; row += strlen(row) + 1)
        if (*row == column && index-- == 0)
            return row + 1;
    return NULL;
}

/* A string of bounded size, written piece by piece. It is always terminated; text that does not fit is cut off. */
typedef struct specdec__writer {
    char *text; /* the string, always terminated */
    size_t size; /* bytes at text */
    size_t used; /* bytes written, without the terminator */
} specdec__writer;

/* Returns a writer into text[size], which is empty at first. */
static specdec__writer specdec__writer_to(char *text, size_t size)
{
    specdec__writer w;

    w.text = text;
    w.size = size;
    w.used = 0;
    return w;
}

/* Appends `count` bytes to a writer's string; control bytes become '?'. */
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

/* Appends an integer to a writer's string, in decimal digits. negative: 1: with a minus sign before value. */
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

/* Appends formatted text to a writer's string, as vprintf does, with the conversions that error texts need: %s %.*s %d
   %u %zu %llu %%. */
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
/* Stores the code of an error in *error, with an empty text, unless error is NULL. Returns the code. */
static SPECDEC__UNUSED specdec_result specdec__fail_without_text(specdec_error *error, specdec_result code)
{
    if (error) {
        error->code = code;
        error->text[0] = 0;
    }
    return code;
}

/* Does nothing: in a build without error texts, it lets compilers check the format and the arguments of an error. */
static SPECDEC__UNUSED __attribute__((format(SPECDEC__PRINTF, 1, 2))) void
specdec__fail_check_format(const char *format, ...)
{
    (void)format;
}

#define specdec__log_line(hooks, ...) ((void)(0 ? specdec__fail_check_format(__VA_ARGS__) : (void)(hooks)))
#define specdec__fail(error, code, ...) \
    ((void)(0 ? specdec__fail_check_format(__VA_ARGS__) : (void)0), specdec__fail_without_text((error), (code)))
#else
/* Stores an error's code and text in *error, unless error is NULL. Returns the code, so that a check can read `return
   specdec__fail(...)`. */
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

/* Calls the caller's log hook, if there is one, with a line of text. */
static SPECDEC__UNUSED __attribute__((format(SPECDEC__PRINTF, 2, 3))) void
specdec__log_line(const specdec_hooks *hooks, const char *format, ...)
{
    char line[200];
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
SPECDEC__FOR_SPEED
