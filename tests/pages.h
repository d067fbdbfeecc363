/* pages.h - pages of memory for tests: aligned ones, and some that nobody may touch. Include it behind specdec.h. */
#ifndef PAGES_H
#define PAGES_H
#include <stdlib.h>

#define PAGES_SIZE 4096

#ifdef _WIN32
#include <malloc.h>
#include <windows.h>

/* bytes that nobody may touch yet; NULL when there are none. */
static inline unsigned char *pages_reserve(size_t bytes)
{
    return (unsigned char *)VirtualAlloc(NULL, bytes, MEM_RESERVE, PAGE_NOACCESS);
}

/* Opens some of them. Returns 0 when refused. */
static inline int pages_open(unsigned char *at, size_t bytes)
{
    return VirtualAlloc(at, bytes, MEM_COMMIT, PAGE_READWRITE) != NULL;
}

static inline void pages_release(unsigned char *base, size_t bytes)
{
    (void)bytes;
    VirtualFree(base, 0, MEM_RELEASE);
}

/* Memory that begins with a page; NULL when there is none. */
static inline void *pages_take(size_t bytes) { return _aligned_malloc(bytes, PAGES_SIZE); }
static inline void pages_free(void *block) { _aligned_free(block); }
#else
#include <sys/mman.h>

static inline unsigned char *pages_reserve(size_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return base == MAP_FAILED ? NULL : (unsigned char *)base;
}

static inline int pages_open(unsigned char *at, size_t bytes)
{
    return mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0;
}

static inline void pages_release(unsigned char *base, size_t bytes) { munmap(base, bytes); }

static inline void *pages_take(size_t bytes)
{
    void *block = NULL;

    return posix_memalign(&block, PAGES_SIZE, bytes) ? NULL : block;
}

static inline void pages_free(void *block) { free(block); }
#endif
#endif
