/* =====================================================================================================================
 * >>base/base: compiler facts, checked arithmetic, byte order, noise, the bump arena, error text, the log.
 * ================================================================================================================== */

#pragma once
#include "begin.h"

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
#elif defined(__arm__) && defined(__ARM_FP) && defined(__ARMEL__) && !defined(SPECDEC_NO_SIMD) && \
    ((defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA)) || \
     (!defined(__clang__) && !defined(SPECDEC_FREESTANDING) && \
      (__ARM_ARCH == 6 || (__ARM_ARCH == 7 && __ARM_ARCH_PROFILE != 'M'))))
/* 32-bit ARM. gcc builds functions for NEON whatever the command line says, and the processor is asked; not where
   nobody would answer. clang builds them only where the command line has NEON and VFPv4 (-mfpu=neon-vfpv4). */
#define SPECDEC__NEON32
#if !(defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA))
#define SPECDEC__NEON32_ASKED
/* No "arch=...": gcc inlines no helper into a function whose target lacks what the command line has. */
#pragma GCC push_options
#pragma GCC target("fpu=neon-vfpv4")
#endif
#include <arm_neon.h>
#ifdef SPECDEC__NEON32_ASKED
#pragma GCC pop_options
#endif
#elif defined(__riscv_v) && defined(__clang__) && !defined(SPECDEC_NO_SIMD)
#if __has_builtin(__builtin_elementwise_fma) /* clang 17 and newer */
/* RISC-V with vectors: chosen on the command line (-march=rv64gcv), as the compiler uses them everywhere then. */
#define SPECDEC__RVV
#include <riscv_vector.h>
#endif
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
#define SPECDEC__UNUSED __attribute__((unused))
#if defined(SPECDEC_KERNELS) || defined(SPECDEC_KERNELS_APART) /* half of the header does not call all of it */
#define SPECDEC__HALVED SPECDEC__UNUSED
#else
#define SPECDEC__HALVED
#endif
#if !defined(__OPTIMIZE__) || (defined(__OPTIMIZE_SIZE__) && defined(SPECDEC_NO_SIMD))
#define SPECDEC__INLINE static inline SPECDEC__HALVED
#else
#define SPECDEC__INLINE static inline __attribute__((always_inline)) SPECDEC__HALVED
#endif
/* Words at any address, where that is one instruction: always inlined. Built for size, gcc would call them: it counts
   their bytes before it makes a word of them. */
#if defined(__OPTIMIZE__) && (defined(__x86_64__) || defined(__aarch64__) || \
                              (defined(__ARM_FEATURE_UNALIGNED) && defined(__ARMEL__)))
#define SPECDEC__WORD static inline __attribute__((always_inline)) SPECDEC__HALVED
#else
#define SPECDEC__WORD SPECDEC__INLINE
#endif
/* For a function with a large frame: inlined, it would make the frame of its caller as large. */
#define SPECDEC__NOINLINE __attribute__((noinline)) SPECDEC__HALVED
/* Sanitizers take minutes and a gigabyte to compile unrolled kernels, whose loads and integers the tests of same bits
   cover: kernels are left out, unless a test defines SPECDEC_SANITIZE_KERNELS. */
#if defined(SPECDEC_SANITIZE_KERNELS) || (!defined(__clang__) && __GNUC__ < 8)
#define SPECDEC__UNSANITIZED
#else
#define SPECDEC__UNSANITIZED __attribute__((no_sanitize("address", "undefined")))
#endif
/* What stands between these two runs once for a model, an engine or a call. gcc builds it for size, and without what
   moves values out of loops, doubles code to save a jump and restores registers before each last call: that makes code
   longer. On 32-bit ARM it would forget to align strings that other functions, built for speed, take to be aligned. */
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
/* The same for plain C that only processors from before 2008 run, as there are kernels for all others. Small functions
   of it are called. */
#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD)
#define SPECDEC__RARE SPECDEC__FOR_SIZE
#define SPECDEC__RARE_END SPECDEC__FOR_SPEED
#define SPECDEC__RARE_INLINE static SPECDEC__NOINLINE
#else
#define SPECDEC__RARE_INLINE SPECDEC__INLINE
#define SPECDEC__RARE
#define SPECDEC__RARE_END
#endif
#define SPECDEC__COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SPECDEC__STATIC_ASSERT(name, condition) \
    typedef char specdec__static_assert_##name[(condition) ? 1 : -1] SPECDEC__UNUSED
#define SPECDEC__CACHE_LINE 64

/* Whether texts can be saved. */
#ifdef SPECDEC_NO_SAVE
#define SPECDEC__SAVES 0
#else
#define SPECDEC__SAVES 1
#endif

/* Whether chat formats are there. */
#ifdef SPECDEC_NO_CHAT
#define SPECDEC__CHATS 0
#else
#define SPECDEC__CHATS 1
#endif

/* Whether chat templates are read, to see of which format they are. */
#if defined(SPECDEC_NO_CHAT) || defined(SPECDEC_NO_TEMPLATES) || defined(SPECDEC_FREESTANDING)
#define SPECDEC__TEMPLATES 0
#else
#define SPECDEC__TEMPLATES 1
#endif

/* Whether drafts that read the target's states are there. */
#ifdef SPECDEC_NO_HEADS
#define SPECDEC__HEADS 0
#else
#define SPECDEC__HEADS 1
#endif

#ifdef SPECDEC_NO_TRIFORCE
#define SPECDEC__TRIFORCE 0
#else
#define SPECDEC__TRIFORCE 1
#endif

/* Whether drafts by n-grams are there. */
#ifdef SPECDEC_NO_NGRAM
#define SPECDEC__NGRAMS 0
#else
#define SPECDEC__NGRAMS 1
#endif

/* Whether constraints are there. */
#ifdef SPECDEC_NO_CONSTRAINTS
#define SPECDEC__CONSTRAINTS 0
#else
#define SPECDEC__CONSTRAINTS 1
#endif

/* Whether mixtures of experts are there. */
#ifdef SPECDEC_NO_EXPERTS
#define SPECDEC__EXPERTS 0
#else
#define SPECDEC__EXPERTS 1
#endif

/* Whether recurrent layers are there. */
#ifdef SPECDEC_NO_RECURRENT
#define SPECDEC__RECURRENT 0
#else
#define SPECDEC__RECURRENT 1
#endif

/* Whether there is more to draft with than a model. */
#define SPECDEC__SEVERAL (SPECDEC__HEADS || SPECDEC__TRIFORCE || SPECDEC__NGRAMS || SPECDEC__CONSTRAINTS)

/* Whether an engine may have several texts. */
#ifdef SPECDEC_NO_SEQUENCES
#define SPECDEC__SEQUENCES 0
#else
#define SPECDEC__SEQUENCES 1
#endif

/* Whether the acceptance rules that need distributions are there: all but coupled and greedy. */
#ifdef SPECDEC_NO_VERIFIERS
#define SPECDEC__VERIFIERS 0
#else
#define SPECDEC__VERIFIERS 1
#endif

/* Whether the target's layers may lie on several machines. */
#ifdef SPECDEC_CLUSTER
#define SPECDEC__CLUSTER 1
#else
#define SPECDEC__CLUSTER 0
#endif

/* Whether a target, or a draft model, may have another lane than the caller's threads: that of a cluster, of a test or
   of specdec-sim. Elsewhere nothing of lanes is compiled. */
#ifndef SPECDEC__PIPE
#define SPECDEC__PIPE SPECDEC__CLUSTER
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

SPECDEC__WORD uint32_t specdec__load_u32(const void *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

SPECDEC__WORD uint64_t specdec__load_u64(const void *at)
{
    return (uint64_t)specdec__load_u32(at) | (uint64_t)specdec__load_u32((const unsigned char *)at + 4) << 32;
}

SPECDEC__WORD void specdec__store_u16(void *at, uint16_t value)
{
    unsigned char *b = (unsigned char *)at;
    b[0] = (unsigned char)value;
    b[1] = (unsigned char)(value >> 8);
}

SPECDEC__WORD void specdec__store_u32(void *at, uint32_t value)
{
    specdec__store_u16(at, (uint16_t)value);
    specdec__store_u16((unsigned char *)at + 2, (uint16_t)(value >> 16));
}

SPECDEC__WORD void specdec__store_u64(void *at, uint64_t value)
{
    specdec__store_u32(at, (uint32_t)value);
    specdec__store_u32((unsigned char *)at + 4, (uint32_t)(value >> 32));
}

#define SPECDEC__HASH 0xcbf29ce484222325u /* of no bytes */

/* FNV-1a of 64 bits (Fowler, Noll, Vo), continued from hash. No change of a single byte leaves it as it was. */
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

/* Every second byte, or half of a word, of a and then of b: the even ones (0, 2, 4 ..) or the odd ones. */
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

/* A bijection of 64-bit numbers whose output bits each depend on every input bit (the finaliser of SplitMix64,
   Steele, Lea and Flood 2014, with Stafford's constants). */
SPECDEC__INLINE uint64_t specdec__mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

#define SPECDEC__NOISE_STEP 0x9e3779b97f4a7c15u /* from a token to the next */
#define SPECDEC__NOISE_MOST 22.1808f /* no Gumbel noise of 32 bits is larger: 32 ln 2 and some rounding */

/* 64 random bits for a token of a row; see specdec__sample_noise_row. */
SPECDEC__INLINE uint64_t specdec__noise_at(uint64_t row, uint32_t token)
{
    return specdec__mix(row + (uint64_t)token * SPECDEC__NOISE_STEP);
}

SPECDEC__FOR_SIZE
/* In builds of ours with the address sanitizer: bytes behind every array that nobody may touch. */
#ifdef SPECDEC_FENCE
    #include <sanitizer/asan_interface.h>
    #define SPECDEC__FENCE SPECDEC_FENCE
    #define SPECDEC__FENCED(array, bytes) \
        (ASAN_UNPOISON_MEMORY_REGION(array, bytes), ASAN_POISON_MEMORY_REGION((array) + (bytes), SPECDEC_FENCE))
#else
    #define SPECDEC__FENCE 0
    #define SPECDEC__FENCED(array, bytes) ((void)0)
#endif

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
    size_t end = specdec__size_add(from, specdec__size_add(bytes, SPECDEC__FENCE));

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

/* The same, zeroed. */
static SPECDEC__UNUSED void *specdec__arena_take(specdec__arena *arena, size_t count, size_t item_size, size_t align)
{
    void *room = specdec__arena_reserve(arena, count, item_size, align);

    if (room)
        memset(room, 0, count * item_size);
    return room;
}

/* Goes back to where `from` bytes were taken: what follows shares memory with what has been taken since. Returns how
   far that went, for specdec__arena_beyond. */
static SPECDEC__UNUSED size_t specdec__arena_again(specdec__arena *arena, size_t from)
{
    const size_t end = arena->used;

    if (end != SIZE_MAX && !SPECDEC__FENCE)
        arena->used = from;
    return end;
}

static SPECDEC__UNUSED void specdec__arena_beyond(specdec__arena *arena, size_t end)
{
    if (arena->used < end)
        arena->used = end;
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

/* Takes the format and arguments of an error in a build without messages, so that compilers still check them. */
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
