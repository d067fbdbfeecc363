/* =====================================================================================================================
 * >>base/os: clock, file mapping, threads, atomics, parking; the only #ifdefs on operating systems.
 *
 * Each part defines the same functions three times: for POSIX, for Windows and for no system at all.
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

/* Atomic operations: the builtins of gcc and clang, which C99 and C++11 have both. */
#define SPECDEC__LOAD(at) __atomic_load_n((at), __ATOMIC_ACQUIRE)
#define SPECDEC__STORE(at, value) __atomic_store_n((at), (value), __ATOMIC_RELEASE)
#define SPECDEC__ADD(at, value) __atomic_fetch_add((at), (value), __ATOMIC_ACQ_REL)
#define SPECDEC__SWAP(at, seen, value) \
    __atomic_compare_exchange_n((at), (seen), (value), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* --- processor and clock ------------------------------------------------------------------------------------------ */

#if (defined(__aarch64__) || defined(__arm__)) && defined(__linux__) && !defined(SPECDEC_FREESTANDING)
/* Returns the features of an ARM processor as Linux reports them: the bits of AT_HWCAP (word 0) or AT_HWCAP2 (word 1).
   Returns 0 on other systems. */
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

/* 1 if vectors wider than 16 bytes may lie on the stack. Windows aligns the stack to 16 bytes, and gcc for Windows
   accesses wider vectors there as if they were aligned to their size (GCC bug 54412). SPECDEC_WINDOWS_AVX: this gcc has
   the fix. */
#if defined(_WIN32) && !defined(__clang__) && !defined(SPECDEC_WINDOWS_AVX)
#define SPECDEC__OS_ALIGNS_WIDE_VECTORS 0 /* vectors of 32 and 64 bytes must not lie on the stack */
#else
#define SPECDEC__OS_ALIGNS_WIDE_VECTORS 1
#endif

/* For functions that the library's object files share and that programs must not see. On Windows they are hidden by
   default. */
#if defined(_WIN32)
#define SPECDEC__OS_HIDDEN
#else
#define SPECDEC__OS_HIDDEN __attribute__((visibility("hidden")))
#endif

/* Returns the seconds since 1970, in UTC; 0 in builds without a clock. */
static SPECDEC__UNUSED int64_t specdec__os_seconds_since_1970(void)
{
#if defined(SPECDEC_NO_CLOCK)
    return 0;
#elif defined(_WIN32)
    FILETIME since; /* in units of 100 ns since 1601 */

    GetSystemTimeAsFileTime(&since);
    return (int64_t)(((uint64_t)since.dwHighDateTime << 32 | since.dwLowDateTime) / 10000000u) - INT64_C(11644473600);
#else
    return (int64_t)time(NULL);
#endif
}

/* Returns the seconds since an arbitrary moment, by a clock that never goes back; 0 in builds without a clock. */
static SPECDEC__UNUSED double specdec__os_monotonic_seconds(void)
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

   Functions that each system defines:
   specdec__os_open opens a regular file for reading and returns its size in *size. Returns 1; 0 on failure; -1 if the
   file is not a regular one.
   specdec__os_read_at_most reads at most `size` bytes. Returns the number of bytes read; 0 at the end; -1 on failure.
   specdec__os_map_file maps the first `size` bytes of a file at a given address, or anywhere (NULL). NULL on failure.
   specdec__os_find_free_addresses finds `size` bytes of addresses that are not in use. NULL on failure.
   specdec__os_unmap_range ends all mappings in a range of addresses.
   specdec__os_error_text writes the system's description of the last failure into text[size].
   specdec__os_release_pages is a hint that changes no byte: pages of a mapping need not stay in memory.
   specdec__os_use_large_pages is a hint that changes no byte: all of a large piece of memory will be written. */

#ifdef SPECDEC_NO_FILES
#define SPECDEC__HAS_FILES 0 /* this build leaves out: opening, reading and mapping of files */
#else
#define SPECDEC__HAS_FILES 1 /* this build has: opening, reading and mapping of files */
#endif

#define SPECDEC__OS_ERROR_BYTES 160     /* bytes of a system's error text, at most */
#define SPECDEC__OS_MAP_ALIGNMENT 65536 /* neighbouring mappings begin at multiples of these bytes, on every system */

#if defined(SPECDEC_NO_FILES) || defined(_WIN32)
static void specdec__os_release_pages(const void *data, size_t size) { (void)data, (void)size; }
static void specdec__os_use_large_pages(void *data, size_t size) { (void)data, (void)size; }
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

static ptrdiff_t specdec__os_read_at_most(specdec__os_file file, unsigned char *data, size_t size)
{
    DWORD got, part = size < 1u << 30 ? (DWORD)size : 1u << 30;

    return ReadFile(file, data, part, &got, NULL) ? (ptrdiff_t)got : -1;
}

static const void *specdec__os_map_file(specdec__os_file file, size_t size, unsigned char *at)
{
    HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    const void *data = mapping ? MapViewOfFileEx(mapping, FILE_MAP_READ, 0, 0, size, at) : NULL;

    if (mapping)
        CloseHandle(mapping); /* the view keeps the mapping open */
    return data;
}

static unsigned char *specdec__os_find_free_addresses(size_t size)
{
    void *data = VirtualAlloc(NULL, size, MEM_RESERVE, PAGE_NOACCESS);

    if (data)
        VirtualFree(data, 0, MEM_RELEASE); /* a view needs free addresses; if another thread takes them, it fails */
    return (unsigned char *)data;
}

static void specdec__os_unmap_range(void *data, size_t size)
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

static void specdec__os_error_text(char *text, size_t size)
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

    *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* must not wait for a pipe's writer */
    if (*file < 0)
        return 0;
    if (fstat(*file, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(*file);
        return -1;
    }
    *size = about.st_size > 0 ? (uint64_t)about.st_size : 0;
    return 1;
}

static ptrdiff_t specdec__os_read_at_most(specdec__os_file file, unsigned char *data, size_t size)
{
    ssize_t got;

    do
        got = read(file, data, size < 1u << 30 ? size : 1u << 30); /* macOS refuses 2 GB at once */
    while (got < 0 && errno == EINTR);
    return got;
}

static const void *specdec__os_map_file(specdec__os_file file, size_t size, unsigned char *at)
{
    void *data = mmap(at, size, PROT_READ, at ? MAP_SHARED | MAP_FIXED : MAP_SHARED, file, 0);

    return data == MAP_FAILED ? NULL : data;
}

static unsigned char *specdec__os_find_free_addresses(size_t size)
{
    void *data = mmap(NULL, size + SPECDEC__OS_MAP_ALIGNMENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *at = (unsigned char *)data;
    size_t skip;

    if (data == MAP_FAILED)
        return NULL;
    skip = (size_t)(-(uintptr_t)at & (SPECDEC__OS_MAP_ALIGNMENT - 1));
    if (skip)
        munmap(at, skip);
    munmap(at + skip + size, SPECDEC__OS_MAP_ALIGNMENT - skip);
    return at + skip;
}

static void specdec__os_unmap_range(void *data, size_t size) { munmap(data, size); }

static void specdec__os_close(specdec__os_file file) { close(file); }

/* Gives the system a hint (madvise), which it may decline, about the pages of memory that end inside data[size]. */
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

static void specdec__os_release_pages(const void *data, size_t size)
{
#if defined(MADV_DONTNEED)
    specdec__os_advise(data, size, MADV_DONTNEED);
#else
    (void)data, (void)size;
#endif
}

static void specdec__os_use_large_pages(void *data, size_t size)
{
#if defined(MADV_HUGEPAGE)
    specdec__os_advise(data, size, MADV_HUGEPAGE);
#else
    (void)data, (void)size;
#endif
}

static void specdec__os_error_text(char *text, size_t size)
{
    specdec__writer w = specdec__writer_to(text, size);

    specdec__write_string(&w, strerror(errno));
}
#endif

#if defined(SPECDEC_NO_FILES)
static specdec_result specdec__os_fail_without_files(const char *path, specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "built without files: hand %s over as memory", path);
}

static SPECDEC__UNUSED specdec_result specdec__os_map_whole_file(specdec__bytes *out, const char *path,
                                                                 specdec_error *error)
{
    (void)out;
    return specdec__os_fail_without_files(path, error);
}

static SPECDEC__UNUSED specdec_result specdec__os_read_file_start(unsigned char *data, size_t size, const char *path,
                                                                  specdec_error *error)
{
    (void)data;
    (void)size;
    return specdec__os_fail_without_files(path, error);
}

static SPECDEC__UNUSED void specdec__os_unmap_file(specdec__bytes *file) { (void)file; }

static SPECDEC__UNUSED specdec_result specdec__os_map_file_at(unsigned char *at, size_t size, const char *path,
                                                              specdec_error *error)
{
    (void)at, (void)size;
    return specdec__os_fail_without_files(path, error);
}

static SPECDEC__UNUSED unsigned char *specdec__os_find_free_addresses(size_t size)
{
    return (void)size, (unsigned char *)NULL;
}

static SPECDEC__UNUSED specdec_result specdec__os_prefix_error(const char *path, specdec_result result,
                                                               specdec_error *error)
{
    (void)path, (void)error; /* this build reads no model from a file */
    return result;
}
#else
/* Puts a file's path before an error's text; of a long path, only its end. Returns `result`, the error's code. */
static SPECDEC__UNUSED specdec_result specdec__os_prefix_error(const char *path, specdec_result result,
                                                               specdec_error *error)
{
    char words[SPECDEC_ERROR_TEXT_SIZE];
    size_t length = strlen(path), skip = length > sizeof words / 2 ? length - sizeof words / 2 : 0;

    if (!error)
        return result;
    memcpy(words, error->text, sizeof words);
    while ((path[skip] & 0xC0) == 0x80)
        skip++; /* to the beginning of a UTF-8 character */
    return specdec__fail(error, result, "%s%s: %s", skip ? ".." : "", path + skip, words);
}

/* Returns the error that a file cannot be opened, read or mapped (what: the verb), with the system's reason in its
   text. */
static specdec_result specdec__os_fail(const char *what, const char *path, specdec_error *error)
{
    char why[SPECDEC__OS_ERROR_BYTES];

    specdec__os_error_text(why, sizeof why);
    return specdec__fail(error, SPECDEC_ERROR_FILE, "cannot %s %s: %s", what, path, why);
}

/* Opens a regular file for reading; *size becomes its bytes. Errors: FILE. */
static specdec_result specdec__os_open_regular(specdec__os_file *file, uint64_t *size, const char *path,
                                               specdec_error *error)
{
    int opened = specdec__os_open(file, size, path);

    if (opened < 0)
        return specdec__fail(error, SPECDEC_ERROR_FILE, "%s is not a regular file", path);
    return opened ? SPECDEC_OK : specdec__os_fail("open", path, error);
}

/* Maps a whole regular file read-only into memory; *out becomes its bytes. */
static SPECDEC__UNUSED specdec_result specdec__os_map_whole_file(specdec__bytes *out, const char *path,
                                                                 specdec_error *error)
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
        out->data = (const unsigned char *)specdec__os_map_file(file, out->size, NULL);
        if (!out->data)
            result = specdec__os_fail("map", path, error);
    }
    specdec__os_close(file);
    return result;
}

/* Maps the first `size` bytes of a regular file at an address of a range from specdec__os_find_free_addresses. */
static SPECDEC__UNUSED specdec_result specdec__os_map_file_at(unsigned char *at, size_t size, const char *path,
                                                              specdec_error *error)
{
    specdec__os_file file;
    uint64_t now = 0;
    specdec_result result = specdec__os_open_regular(&file, &now, path, error);

    if (result)
        return result;
    if (now < size)
        result = specdec__fail(error, SPECDEC_ERROR_FILE, "%s shrank while it was read", path);
    else if (!specdec__os_map_file(file, size, at))
        result = specdec__os_fail("map", path, error);
    specdec__os_close(file);
    return result;
}

/* Reads the first `size` bytes of a regular file into data. */
static SPECDEC__UNUSED specdec_result specdec__os_read_file_start(unsigned char *data, size_t size, const char *path,
                                                                  specdec_error *error)
{
    specdec__os_file file;
    uint64_t now = 0;
    size_t done = 0;
    ptrdiff_t got = 0;
    specdec_result result = specdec__os_open_regular(&file, &now, path, error);

    if (result)
        return result;
    while (done < size && (got = specdec__os_read_at_most(file, data + done, size - done)) > 0)
        done += (size_t)got;
    if (got < 0)
        result = specdec__os_fail("read", path, error);
    else if (done < size)
        result = specdec__fail(error, SPECDEC_ERROR_FILE, "%s shrank while it was read", path);
    specdec__os_close(file);
    return result;
}

/* Unmaps a file that specdec__os_map_whole_file has mapped, and clears *file. Does nothing if *file is clear. */
static SPECDEC__UNUSED void specdec__os_unmap_file(specdec__bytes *file)
{
    if (file->data)
        specdec__os_unmap_range((void *)(uintptr_t)file->data, file->size);
    file->data = NULL;
    file->size = 0;
}
#endif

/* --- threads ---------------------------------------------------------------------------------------------------------

   Functions that each system defines:
   specdec__os_create_thread starts a thread that runs thread->function. Where SPECDEC__OS_TAKES_STACKS is 1, the thread
   uses the given stack; elsewhere the system allocates a stack of that size. Returns 0 if the system refuses.
   specdec__os_sleep_until_changed sleeps until *word differs from value, in a parking lot (specdec__os_parking_lot).
   specdec__os_wake_all makes all threads that sleep in a parking lot compare their words again. */

typedef void specdec__os_function(void *argument);

#if defined(SPECDEC_NO_THREADS)
#define SPECDEC__HAS_THREADS 0     /* this build leaves out: helper threads */
#define SPECDEC__OS_TAKES_STACKS 0 /* 1: a thread can be given memory for its stack; 0: the system allocates it */

typedef int specdec__os_handle, specdec__os_parking_lot;
#elif defined(_WIN32)
#define SPECDEC__HAS_THREADS 1
#define SPECDEC__OS_TAKES_STACKS 0

typedef HANDLE specdec__os_handle;

typedef struct specdec__os_parking_lot {
    SRWLOCK lock;               /* held while a thread compares its word */
    CONDITION_VARIABLE changed; /* signalled when words have changed */
} specdec__os_parking_lot;
#else
#define SPECDEC__HAS_THREADS 1
#ifdef __APPLE__ /* stacks must begin with a page, whose size is no constant */
#define SPECDEC__OS_TAKES_STACKS 0
#else
#define SPECDEC__OS_TAKES_STACKS 1
#endif

typedef pthread_t specdec__os_handle;

typedef struct specdec__os_parking_lot {
    pthread_mutex_t mutex;  /* held while a thread compares its word */
    pthread_cond_t changed; /* signalled when words have changed */
} specdec__os_parking_lot;
#endif

typedef struct specdec__os_thread {
    specdec__os_handle handle;      /* the system's handle of the thread */
    specdec__os_function *function; /* what the thread runs */
    void *argument;                 /* argument of the function */
} specdec__os_thread;

#if defined(SPECDEC_NO_THREADS)
static SPECDEC__UNUSED int specdec__os_count_processors(void) { return 1; }
static int specdec__os_create_thread(specdec__os_thread *thread, void *stack, size_t bytes)
{
    return (void)thread, (void)stack, (void)bytes, 0;
}
static void specdec__os_join_thread(specdec__os_thread *thread) { (void)thread; }
static void specdec__os_parking_lot_init(specdec__os_parking_lot *lot) { *lot = 0; }
static void specdec__os_parking_lot_deinit(specdec__os_parking_lot *lot) { (void)lot; }
static void specdec__os_sleep_until_changed(specdec__os_parking_lot *lot, unsigned *word, unsigned value)
{
    (void)lot, (void)word, (void)value;
}
static void specdec__os_wake_all(specdec__os_parking_lot *lot) { (void)lot; }
#elif defined(_WIN32)
/* Returns how many processors this process may use, 1 to SPECDEC_MAX_THREADS. Windows counts only the processor group
   that the process was started in, at most 64. */
static SPECDEC__UNUSED int specdec__os_count_processors(void)
{
    DWORD_PTR ours, all;
    int known = GetProcessAffinityMask(GetCurrentProcess(), &ours, &all);
    int count = known ? __builtin_popcountll((unsigned long long)ours) : 1;

    return count < 1 ? 1 : count > SPECDEC_MAX_THREADS ? SPECDEC_MAX_THREADS : count;
}

static DWORD WINAPI specdec__os_thread_main(LPVOID argument)
{
    specdec__os_thread *thread = (specdec__os_thread *)argument;

    thread->function(thread->argument);
    return 0;
}

static int specdec__os_create_thread(specdec__os_thread *thread, void *stack, size_t bytes)
{
    (void)stack;
    thread->handle = CreateThread(NULL, bytes, specdec__os_thread_main, thread, STACK_SIZE_PARAM_IS_A_RESERVATION,
                                  NULL);
    return thread->handle != NULL;
}

static void specdec__os_join_thread(specdec__os_thread *thread)
{
    WaitForSingleObject(thread->handle, INFINITE);
    CloseHandle(thread->handle);
}

static void specdec__os_parking_lot_init(specdec__os_parking_lot *lot)
{
    InitializeSRWLock(&lot->lock);
    InitializeConditionVariable(&lot->changed);
}

static void specdec__os_parking_lot_deinit(specdec__os_parking_lot *lot) { (void)lot; }

static void specdec__os_sleep_until_changed(specdec__os_parking_lot *lot, unsigned *word, unsigned value)
{
    AcquireSRWLockExclusive(&lot->lock);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
        SleepConditionVariableSRW(&lot->changed, &lot->lock, INFINITE, 0);
    ReleaseSRWLockExclusive(&lot->lock);
}

static void specdec__os_wake_all(specdec__os_parking_lot *lot)
{
    AcquireSRWLockExclusive(&lot->lock);
    WakeAllConditionVariable(&lot->changed);
    ReleaseSRWLockExclusive(&lot->lock);
}
#else
/* Returns how many processors this process may use, 1 to SPECDEC_MAX_THREADS. */
static SPECDEC__UNUSED int specdec__os_count_processors(void)
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

static void *specdec__os_thread_main(void *argument)
{
    specdec__os_thread *thread = (specdec__os_thread *)argument;

    thread->function(thread->argument);
    return NULL;
}

static int specdec__os_create_thread(specdec__os_thread *thread, void *stack, size_t bytes)
{
    pthread_attr_t attributes;
    int failed;

    pthread_attr_init(&attributes);
    failed = SPECDEC__OS_TAKES_STACKS ? pthread_attr_setstack(&attributes, stack, bytes)
                                      : pthread_attr_setstacksize(&attributes, bytes);
    failed = failed ? failed : pthread_create(&thread->handle, &attributes, specdec__os_thread_main, thread);
    pthread_attr_destroy(&attributes);
    return !failed;
}

static void specdec__os_join_thread(specdec__os_thread *thread) { pthread_join(thread->handle, NULL); }

static void specdec__os_parking_lot_init(specdec__os_parking_lot *lot)
{
    pthread_mutex_init(&lot->mutex, NULL);
    pthread_cond_init(&lot->changed, NULL);
}

static void specdec__os_parking_lot_deinit(specdec__os_parking_lot *lot)
{
    pthread_cond_destroy(&lot->changed);
    pthread_mutex_destroy(&lot->mutex);
}

static void specdec__os_sleep_until_changed(specdec__os_parking_lot *lot, unsigned *word, unsigned value)
{
    pthread_mutex_lock(&lot->mutex);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
        pthread_cond_wait(&lot->changed, &lot->mutex);
    pthread_mutex_unlock(&lot->mutex);
}

static void specdec__os_wake_all(specdec__os_parking_lot *lot)
{
    pthread_mutex_lock(&lot->mutex);
    pthread_cond_broadcast(&lot->changed);
    pthread_mutex_unlock(&lot->mutex);
}
#endif

/* Starts a thread that runs function(argument). *thread must not move until it is joined. Returns 0 if the system
   refuses. */
static int specdec__os_start_thread(specdec__os_thread *thread, void *stack, size_t bytes,
                                    specdec__os_function *function, void *argument)
{
    thread->function = function;
    thread->argument = argument;
    return specdec__os_create_thread(thread, stack, bytes);
}
