/*
 * Preloaded into a process, counts its calls to the allocator, and makes some of them fail: one in so many, chosen by
 * chance, as the file that HEADGATE_MALLOC_ORDERS names says. It is memory that this process and the test share, and
 * begins with zeroes: nothing fails. Works below gcc's address sanitizer, too, if that is preloaded behind it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct orders {
    _Atomic uint64_t every; /* one call in so many fails; 0: none */
    _Atomic uint64_t seed;
    _Atomic uint64_t calls; /* that could have failed */
    _Atomic uint64_t failures;
    _Atomic uint64_t frees;
};

/* The sanitizer's, where it is there, or glibc's own, under the names that they keep for those who replace the public
 * ones. */
extern void *__interceptor_malloc(size_t size) __attribute__((weak));
extern void *__interceptor_calloc(size_t count, size_t size) __attribute__((weak));
extern void *__interceptor_realloc(void *data, size_t size) __attribute__((weak));
extern void *__interceptor_memalign(size_t alignment, size_t size) __attribute__((weak));
extern void __interceptor_free(void *data) __attribute__((weak));
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *data, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *data);

static struct orders before_start;
static struct orders *orders = &before_start;

__attribute__((constructor)) static void open_orders(void)
{
    const char *path = getenv("HEADGATE_MALLOC_ORDERS");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;

    if (fd < 0) {
        return;
    }
    void *shared = mmap(NULL, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED) {
        orders = shared;
    }
    close(fd);
}

static uint64_t mix(uint64_t number)
{
    number += UINT64_C(0x9e3779b97f4a7c15);
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

static bool fails(void)
{
    uint64_t every = atomic_load_explicit(&orders->every, memory_order_relaxed);
    uint64_t call = atomic_fetch_add_explicit(&orders->calls, 1, memory_order_relaxed);

    if (every == 0 || mix(call ^ mix(atomic_load_explicit(&orders->seed, memory_order_relaxed))) % every != 0) {
        return false;
    }
    atomic_fetch_add_explicit(&orders->failures, 1, memory_order_relaxed);
    errno = ENOMEM;
    return true;
}

static void *take_aligned(size_t alignment, size_t size)
{
    return __interceptor_memalign != NULL ? __interceptor_memalign(alignment, size) : __libc_memalign(alignment, size);
}

void *malloc(size_t size)
{
    if (fails()) {
        return NULL;
    }
    return __interceptor_malloc != NULL ? __interceptor_malloc(size) : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    if (fails()) {
        return NULL;
    }
    return __interceptor_calloc != NULL ? __interceptor_calloc(count, size) : __libc_calloc(count, size);
}

void *realloc(void *data, size_t size)
{
    if (size > 0 && fails()) {
        return NULL;
    }
    return __interceptor_realloc != NULL ? __interceptor_realloc(data, size) : __libc_realloc(data, size);
}

void *memalign(size_t alignment, size_t size)
{
    return fails() ? NULL : take_aligned(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : take_aligned(alignment, size);
}

int posix_memalign(void **data, size_t alignment, size_t size)
{
    void *taken = fails() ? NULL : take_aligned(alignment, size);

    if (taken == NULL) {
        return ENOMEM;
    }
    *data = taken;
    return 0;
}

void free(void *data)
{
    atomic_fetch_add_explicit(&orders->frees, 1, memory_order_relaxed);
    (__interceptor_free != NULL ? __interceptor_free : __libc_free)(data);
}
