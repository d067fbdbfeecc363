/* =====================================================================================================================
 * >>base/os: clock, file mapping, threads, atomics, parking; the only #ifdefs on operating systems.
 *
 * Each part is written for POSIX, for Windows and for no system at all; what the three define has the same names.
 * ================================================================================================================== */

#pragma once
#include "base.h"

#ifdef SPECDEC_FREESTANDING
#ifndef SPECDEC_NO_FILES
#define SPECDEC_NO_FILES
#endif
#ifndef SPECDEC_NO_THREADS
#define SPECDEC_NO_THREADS
#endif
#ifndef SPECDEC_NO_CLOCK
#define SPECDEC_NO_CLOCK
#endif
#ifndef SPECDEC_NO_ENCODERS
#define SPECDEC_NO_ENCODERS
#endif
#ifndef SPECDEC_NO_NAMES
#define SPECDEC_NO_NAMES
#endif
#endif

#if defined(_WIN32)
#if !defined(SPECDEC_NO_FILES) || !defined(SPECDEC_NO_THREADS) || !defined(SPECDEC_NO_CLOCK)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#endif
#else
#ifndef SPECDEC_NO_FILES
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif
#ifndef SPECDEC_NO_THREADS
#include <limits.h>
#include <pthread.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#endif
#ifndef SPECDEC_NO_CLOCK
#include <time.h>
#ifndef CLOCK_MONOTONIC
#error "specdec.h: include the implementation before system headers, or define _DEFAULT_SOURCE (strict C hides POSIX)"
#endif
#endif
#if (defined(__aarch64__) || defined(__arm__)) && defined(__linux__) && !defined(SPECDEC_FREESTANDING)
#include <sys/auxv.h>
#endif
#endif

/* Atomics: the gcc/clang builtins, which C99 and C++11 share. */
#define SPECDEC__LOAD(at) __atomic_load_n((at), __ATOMIC_ACQUIRE)
#define SPECDEC__STORE(at, value) __atomic_store_n((at), (value), __ATOMIC_RELEASE)
#define SPECDEC__ADD(at, value) __atomic_fetch_add((at), (value), __ATOMIC_ACQ_REL)
#define SPECDEC__SWAP(at, seen, value) \
    __atomic_compare_exchange_n((at), (seen), (value), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* --- processor and clock ------------------------------------------------------------------------------------------ */

#if (defined(__aarch64__) || defined(__arm__)) && defined(__linux__) && !defined(SPECDEC_FREESTANDING)
/* What Linux tells about an ARM processor: the bits of word 0 or 1. Other systems tell nothing this way: 0. */
static SPECDEC__UNUSED unsigned long specdec__os_arm_features(int word)
{
    return getauxval(word ? AT_HWCAP2 : AT_HWCAP);
}
#else
static SPECDEC__UNUSED unsigned long specdec__os_arm_features(int word)
{
    (void)word;
    return 0;
}
#endif

/* Whether vectors wider than 16 bytes may lie on the stack. Windows aligns the stack to 16, and gcc for Windows moves
   wider vectors on it as if they were aligned to their size (GCC bug 54412). SPECDEC_WINDOWS_AVX says that this gcc was
   mended. */
#if defined(_WIN32) && !defined(__clang__) && !defined(SPECDEC_WINDOWS_AVX)
#define SPECDEC__OS_WIDE_STACK 0
#else
#define SPECDEC__OS_WIDE_STACK 1
#endif

/* For functions that files of the library share and that programs shall not see. Windows hides them anyway. */
#if defined(_WIN32)
#define SPECDEC__OS_HIDDEN
#else
#define SPECDEC__OS_HIDDEN __attribute__((visibility("hidden")))
#endif

/* Seconds since 1970, in UTC, for dates that are written; 0 where there is no clock. */
static SPECDEC__UNUSED int64_t specdec__os_date(void)
{
#if defined(SPECDEC_NO_CLOCK)
    return 0;
#elif defined(_WIN32)
    FILETIME since; /* of 100 ns since 1601 */

    GetSystemTimeAsFileTime(&since);
    return (int64_t)(((uint64_t)since.dwHighDateTime << 32 | since.dwLowDateTime) / 10000000u) - INT64_C(11644473600);
#else
    return (int64_t)time(NULL);
#endif
}

/* Seconds since some fixed moment; 0 where there is no clock. */
static SPECDEC__UNUSED double specdec__os_seconds(void)
{
#if defined(SPECDEC_NO_CLOCK)
    return 0;
#elif defined(_WIN32)
    LARGE_INTEGER now, second;

    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&second);
    return (double)now.QuadPart / (double)second.QuadPart;
#else
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
}

/* --- files -----------------------------------------------------------------------------------------------------------

   What each system defines: specdec__os_open opens a regular file for reading and tells its size; it returns 1, 0
   when that fails, -1 when the file is of another kind. specdec__os_get reads some bytes: it returns how many, 0 at
   the end, -1 on failure. specdec__os_view maps the first bytes, at an address or, NULL, anywhere; NULL on failure.
   specdec__os_room finds addresses for so many bytes that nobody uses. specdec__os_unview ends all mappings in a range.
   specdec__os_why writes into text[size] what the system says about the last failure.

   Two hints, which change no byte: the pages of a part of a view need not stay in memory (specdec__os_give_back),
   whoever reads them finds them again; all of a large piece of memory will be written (specdec__os_large_pages). */

#ifdef SPECDEC_NO_FILES
#define SPECDEC__FILES 0
#else
#define SPECDEC__FILES 1
#endif

#define SPECDEC__OS_WHY 160     /* bytes of what a system says, at most */
#define SPECDEC__OS_GRAIN 65536 /* of this mappings side by side begin at multiples, on every system */

#if defined(SPECDEC_NO_FILES) || defined(_WIN32)
static void specdec__os_give_back(const void *data, size_t size) { (void)data, (void)size; }
static void specdec__os_large_pages(void *data, size_t size) { (void)data, (void)size; }
#endif

#if defined(SPECDEC_NO_FILES)
#elif defined(_WIN32)
typedef HANDLE specdec__os_file;

static int specdec__os_open(specdec__os_file *file, uint64_t *size, const char *path)
{
    WCHAR wide[1024]; /* paths are UTF-8 */
    LARGE_INTEGER bytes;

    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, (int)SPECDEC__COUNT(wide)))
        return 0;
    *file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                        FILE_ATTRIBUTE_NORMAL, NULL);
    if (*file == INVALID_HANDLE_VALUE)
        return 0;
    if (GetFileType(*file) != FILE_TYPE_DISK || !GetFileSizeEx(*file, &bytes)) {
        CloseHandle(*file);
        return -1;
    }
    *size = (uint64_t)bytes.QuadPart;
    return 1;
}

static ptrdiff_t specdec__os_get(specdec__os_file file, unsigned char *data, size_t size)
{
    DWORD got, part = size < 1u << 30 ? (DWORD)size : 1u << 30;

    return ReadFile(file, data, part, &got, NULL) ? (ptrdiff_t)got : -1;
}

static const void *specdec__os_view(specdec__os_file file, size_t size, unsigned char *at)
{
    HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    const void *data = mapping ? MapViewOfFileEx(mapping, FILE_MAP_READ, 0, 0, size, at) : NULL;

    if (mapping)
        CloseHandle(mapping); /* the view keeps it */
    return data;
}

static unsigned char *specdec__os_room(size_t size)
{
    void *data = VirtualAlloc(NULL, size, MEM_RESERVE, PAGE_NOACCESS);

    if (data)
        VirtualFree(data, 0, MEM_RELEASE); /* views take no reserved addresses; if another thread does, they fail */
    return (unsigned char *)data;
}

static void specdec__os_unview(void *data, size_t size)
{
    unsigned char *at = (unsigned char *)data, *end = at + size;
    MEMORY_BASIC_INFORMATION about;

    while (at < end && VirtualQuery(at, &about, sizeof about) && about.RegionSize) {
        at = (unsigned char *)about.BaseAddress + about.RegionSize;
        if (about.Type == MEM_MAPPED)
            UnmapViewOfFile(about.AllocationBase);
    }
}

static void specdec__os_close(specdec__os_file file) { CloseHandle(file); }

static void specdec__os_why(char *text, size_t size)
{
    DWORD flags = FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS | FORMAT_MESSAGE_MAX_WIDTH_MASK;
    DWORD length = FormatMessageA(flags, NULL, GetLastError(), 0, text, (DWORD)size, NULL);

    text[length] = 0;
    while (length && text[length - 1] == ' ')
        text[--length] = 0;
}
#else
typedef int specdec__os_file;

static int specdec__os_open(specdec__os_file *file, uint64_t *size, const char *path)
{
    struct stat about;

    *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe without a writer must not hold us up */
    if (*file < 0)
        return 0;
    if (fstat(*file, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(*file);
        return -1;
    }
    *size = about.st_size > 0 ? (uint64_t)about.st_size : 0;
    return 1;
}

static ptrdiff_t specdec__os_get(specdec__os_file file, unsigned char *data, size_t size)
{
    ssize_t got;

    do
        got = read(file, data, size < 1u << 30 ? size : 1u << 30); /* macOS refuses 2 GB at once */
    while (got < 0 && errno == EINTR);
    return got;
}

static const void *specdec__os_view(specdec__os_file file, size_t size, unsigned char *at)
{
    void *data = mmap(at, size, PROT_READ, at ? MAP_SHARED | MAP_FIXED : MAP_SHARED, file, 0);

    return data == MAP_FAILED ? NULL : data;
}

static unsigned char *specdec__os_room(size_t size)
{
    void *data = mmap(NULL, size + SPECDEC__OS_GRAIN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *at = (unsigned char *)data;
    size_t skip;

    if (data == MAP_FAILED)
        return NULL;
    skip = (size_t)(-(uintptr_t)at & (SPECDEC__OS_GRAIN - 1));
    if (skip)
        munmap(at, skip);
    munmap(at + skip + size, SPECDEC__OS_GRAIN - skip);
    return at + skip;
}

static void specdec__os_unview(void *data, size_t size) { munmap(data, size); }

static void specdec__os_close(specdec__os_file file) { close(file); }

/* Hands a hint to the system, which may decline it, about the pages that end inside data[size]. */
static SPECDEC__UNUSED void specdec__os_advise(const void *data, size_t size, int hint)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data;
    const uintptr_t from = at & ~(page - 1), end = (at + size) & ~(page - 1);

#if defined(MADV_DONTNEED)
    if (from < end)
        madvise((void *)from, end - from, hint);
#else
    (void)from, (void)end, (void)hint;
#endif
}

static void specdec__os_give_back(const void *data, size_t size)
{
#if defined(MADV_DONTNEED)
    specdec__os_advise(data, size, MADV_DONTNEED);
#else
    (void)data, (void)size;
#endif
}

static void specdec__os_large_pages(void *data, size_t size)
{
#if defined(MADV_HUGEPAGE)
    specdec__os_advise(data, size, MADV_HUGEPAGE);
#else
    (void)data, (void)size;
#endif
}

static void specdec__os_why(char *text, size_t size)
{
    specdec__writer w = specdec__writer_to(text, size);

    specdec__write_string(&w, strerror(errno));
}
#endif

#if defined(SPECDEC_NO_FILES)
static specdec_result specdec__os_no_files(const char *path, specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "built without files: hand %s over as memory", path);
}

static SPECDEC__UNUSED specdec_result specdec__os_map(specdec__bytes *out, const char *path, specdec_error *error)
{
    (void)out;
    return specdec__os_no_files(path, error);
}

static SPECDEC__UNUSED specdec_result specdec__os_read(unsigned char *data, size_t size, const char *path,
                                                       specdec_error *error)
{
    (void)data;
    (void)size;
    return specdec__os_no_files(path, error);
}

static SPECDEC__UNUSED void specdec__os_unmap(specdec__bytes *file) { (void)file; }

static SPECDEC__UNUSED specdec_result specdec__os_map_at(unsigned char *at, size_t size, const char *path,
                                                         specdec_error *error)
{
    (void)at, (void)size;
    return specdec__os_no_files(path, error);
}

static SPECDEC__UNUSED unsigned char *specdec__os_room(size_t size) { return (void)size, (unsigned char *)NULL; }

static SPECDEC__UNUSED specdec_result specdec__os_blame(const char *path, specdec_result result, specdec_error *error)
{
    (void)path, (void)error; /* no model comes from a file */
    return result;
}
#else
/* Puts the name of a file in front of what is wrong with it; of a long name, the end. */
static SPECDEC__UNUSED specdec_result specdec__os_blame(const char *path, specdec_result result,
                                                        specdec_error *error)
{
    char words[SPECDEC_ERROR_TEXT_SIZE];
    size_t length = strlen(path), skip = length > sizeof words / 2 ? length - sizeof words / 2 : 0;

    if (!error)
        return result;
    memcpy(words, error->text, sizeof words);
    while ((path[skip] & 0xC0) == 0x80)
        skip++; /* to the beginning of a character */
    return specdec__fail(error, result, "%s%s: %s", skip ? ".." : "", path + skip, words);
}

/* Says that a file cannot be opened, read or mapped, and why. */
static specdec_result specdec__os_refused(const char *what, const char *path, specdec_error *error)
{
    char why[SPECDEC__OS_WHY];

    specdec__os_why(why, sizeof why);
    return specdec__fail(error, SPECDEC_ERROR_FILE, "cannot %s %s: %s", what, path, why);
}

/* Opens a regular file for reading. */
static specdec_result specdec__os_open_regular(specdec__os_file *file, uint64_t *size, const char *path,
                                               specdec_error *error)
{
    int opened = specdec__os_open(file, size, path);

    if (opened < 0)
        return specdec__fail(error, SPECDEC_ERROR_FILE, "%s is not a regular file", path);
    return opened ? SPECDEC_OK : specdec__os_refused("open", path, error);
}

/* A whole regular file, mapped read-only. */
static SPECDEC__UNUSED specdec_result specdec__os_map(specdec__bytes *out, const char *path, specdec_error *error)
{
    specdec__os_file file;
    uint64_t size = 0;
    specdec_result result = specdec__os_open_regular(&file, &size, path, error);

    if (result)
        return result;
    if (!size || size > (uint64_t)(SIZE_MAX / 2)) {
        result = specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is %s", path, size ? "too large to map" : "empty");
    } else {
        out->size = (size_t)size;
        out->data = (const unsigned char *)specdec__os_view(file, out->size, NULL);
        if (!out->data)
            result = specdec__os_refused("map", path, error);
    }
    specdec__os_close(file);
    return result;
}

/* Maps the first `size` bytes of a regular file at an address in what specdec__os_room has found. */
static SPECDEC__UNUSED specdec_result specdec__os_map_at(unsigned char *at, size_t size, const char *path,
                                                         specdec_error *error)
{
    specdec__os_file file;
    uint64_t now = 0;
    specdec_result result = specdec__os_open_regular(&file, &now, path, error);

    if (result)
        return result;
    if (now < size)
        result = specdec__fail(error, SPECDEC_ERROR_FILE, "%s shrank while it was read", path);
    else if (!specdec__os_view(file, size, at))
        result = specdec__os_refused("map", path, error);
    specdec__os_close(file);
    return result;
}

/* Reads the first `size` bytes of a file. */
static SPECDEC__UNUSED specdec_result specdec__os_read(unsigned char *data, size_t size, const char *path,
                                                       specdec_error *error)
{
    specdec__os_file file;
    uint64_t now = 0;
    size_t done = 0;
    ptrdiff_t got = 0;
    specdec_result result = specdec__os_open_regular(&file, &now, path, error);

    if (result)
        return result;
    while (done < size && (got = specdec__os_get(file, data + done, size - done)) > 0)
        done += (size_t)got;
    if (got < 0)
        result = specdec__os_refused("read", path, error);
    else if (done < size)
        result = specdec__fail(error, SPECDEC_ERROR_FILE, "%s shrank while it was read", path);
    specdec__os_close(file);
    return result;
}

/* Ends a mapping. Does nothing when there is none, or none any more. */
static SPECDEC__UNUSED void specdec__os_unmap(specdec__bytes *file)
{
    if (file->data)
        specdec__os_unview((void *)(uintptr_t)file->data, file->size);
    file->data = NULL;
    file->size = 0;
}
#endif

/* --- threads ---------------------------------------------------------------------------------------------------------

   What each system defines: specdec__os_begin starts thread->function. Where SPECDEC__OS_OWN_STACKS is 1, it runs on
   the given stack; elsewhere the system allocates a stack of that size. It returns 0 when the thread is refused.
   A lot is where threads sleep. specdec__os_park sleeps until *word differs from value; specdec__os_wake makes all who
   sleep in a lot look at their words again. */

typedef void specdec__os_function(void *argument);

#if defined(SPECDEC_NO_THREADS)
#define SPECDEC__OS_THREADS 0
#define SPECDEC__OS_OWN_STACKS 0

typedef int specdec__os_handle, specdec__os_lot;
#elif defined(_WIN32)
#define SPECDEC__OS_THREADS 1
#define SPECDEC__OS_OWN_STACKS 0

typedef HANDLE specdec__os_handle;

typedef struct specdec__os_lot {
    SRWLOCK lock;
    CONDITION_VARIABLE changed;
} specdec__os_lot;
#else
#define SPECDEC__OS_THREADS 1
#ifdef __APPLE__ /* takes stacks that begin with a page: of which size, no constant tells */
#define SPECDEC__OS_OWN_STACKS 0
#else
#define SPECDEC__OS_OWN_STACKS 1
#endif

typedef pthread_t specdec__os_handle;

typedef struct specdec__os_lot {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
} specdec__os_lot;
#endif

typedef struct specdec__os_thread {
    specdec__os_handle handle;
    specdec__os_function *function;
    void *argument;
} specdec__os_thread;

#if defined(SPECDEC_NO_THREADS)
static SPECDEC__UNUSED int specdec__os_processors(void) { return 1; }
static int specdec__os_begin(specdec__os_thread *t, void *s, size_t bytes) { return (void)t, (void)s, (void)bytes, 0; }
static void specdec__os_join(specdec__os_thread *thread) { (void)thread; }
static void specdec__os_lot_init(specdec__os_lot *lot) { *lot = 0; }
static void specdec__os_lot_deinit(specdec__os_lot *lot) { (void)lot; }
static void specdec__os_park(specdec__os_lot *l, unsigned *word, unsigned value) { (void)l, (void)word, (void)value; }
static void specdec__os_wake(specdec__os_lot *lot) { (void)lot; }
#elif defined(_WIN32)
/* Processors that this process may use, at least 1; only those of the processor group that it was started in are
   counted, at most 64. */
static SPECDEC__UNUSED int specdec__os_processors(void)
{
    DWORD_PTR ours, all;
    int known = GetProcessAffinityMask(GetCurrentProcess(), &ours, &all);
    int count = known ? __builtin_popcountll((unsigned long long)ours) : 1;

    return count < 1 ? 1 : count > SPECDEC_MAX_THREADS ? SPECDEC_MAX_THREADS : count;
}

static DWORD WINAPI specdec__os_main(LPVOID argument)
{
    specdec__os_thread *thread = (specdec__os_thread *)argument;

    thread->function(thread->argument);
    return 0;
}

static int specdec__os_begin(specdec__os_thread *thread, void *stack, size_t bytes)
{
    (void)stack;
    thread->handle = CreateThread(NULL, bytes, specdec__os_main, thread, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    return thread->handle != NULL;
}

static void specdec__os_join(specdec__os_thread *thread)
{
    WaitForSingleObject(thread->handle, INFINITE);
    CloseHandle(thread->handle);
}

static void specdec__os_lot_init(specdec__os_lot *lot)
{
    InitializeSRWLock(&lot->lock);
    InitializeConditionVariable(&lot->changed);
}

static void specdec__os_lot_deinit(specdec__os_lot *lot) { (void)lot; }

static void specdec__os_park(specdec__os_lot *lot, unsigned *word, unsigned value)
{
    AcquireSRWLockExclusive(&lot->lock);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
        SleepConditionVariableSRW(&lot->changed, &lot->lock, INFINITE, 0);
    ReleaseSRWLockExclusive(&lot->lock);
}

static void specdec__os_wake(specdec__os_lot *lot)
{
    AcquireSRWLockExclusive(&lot->lock);
    WakeAllConditionVariable(&lot->changed);
    ReleaseSRWLockExclusive(&lot->lock);
}
#else
/* Processors that this process may use, at least 1. */
static SPECDEC__UNUSED int specdec__os_processors(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);

#if defined(__linux__) && defined(SYS_sched_getaffinity)
    unsigned long mask[128]; /* 8192 processors on 64-bit systems */
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask), i;

    if (bytes > 0)
        for (count = 0, i = 0; i < bytes / (long)sizeof *mask; i++)
            count += __builtin_popcountl(mask[i]);
#endif
    return count < 1 ? 1 : count > SPECDEC_MAX_THREADS ? SPECDEC_MAX_THREADS : (int)count;
}

static void *specdec__os_main(void *argument)
{
    specdec__os_thread *thread = (specdec__os_thread *)argument;

    thread->function(thread->argument);
    return NULL;
}

static int specdec__os_begin(specdec__os_thread *thread, void *stack, size_t bytes)
{
    pthread_attr_t attributes;
    int failed;

    pthread_attr_init(&attributes);
    failed = SPECDEC__OS_OWN_STACKS ? pthread_attr_setstack(&attributes, stack, bytes)
                              : pthread_attr_setstacksize(&attributes, bytes);
    failed = failed ? failed : pthread_create(&thread->handle, &attributes, specdec__os_main, thread);
    pthread_attr_destroy(&attributes);
    return !failed;
}

static void specdec__os_join(specdec__os_thread *thread) { pthread_join(thread->handle, NULL); }

static void specdec__os_lot_init(specdec__os_lot *lot)
{
    pthread_mutex_init(&lot->mutex, NULL);
    pthread_cond_init(&lot->changed, NULL);
}

static void specdec__os_lot_deinit(specdec__os_lot *lot)
{
    pthread_cond_destroy(&lot->changed);
    pthread_mutex_destroy(&lot->mutex);
}

static void specdec__os_park(specdec__os_lot *lot, unsigned *word, unsigned value)
{
    pthread_mutex_lock(&lot->mutex);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
        pthread_cond_wait(&lot->changed, &lot->mutex);
    pthread_mutex_unlock(&lot->mutex);
}

static void specdec__os_wake(specdec__os_lot *lot)
{
    pthread_mutex_lock(&lot->mutex);
    pthread_cond_broadcast(&lot->changed);
    pthread_mutex_unlock(&lot->mutex);
}
#endif

/* Starts function(argument) on a thread; *thread must stay where it is until it is joined. Returns 0 when refused. */
static int specdec__os_start(specdec__os_thread *thread, void *stack, size_t bytes, specdec__os_function *function,
                             void *argument)
{
    thread->function = function;
    thread->argument = argument;
    return specdec__os_begin(thread, stack, bytes);
}
