/*
 * Preloaded into a process, counts its calls to the allocator in the file that HEADGATE_MALLOC_COUNTS names: two
 * 64-bit numbers, calls that allocate and calls to free, for another process to read at any time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct counts {
    _Atomic uint64_t allocations;
    _Atomic uint64_t frees;
};

/* glibc's own, under the names that it keeps for those who replace the public ones. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *data, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *data);

static struct counts before_start;
static struct counts *counts = &before_start;

__attribute__((constructor)) static void open_counts(void)
{
    const char *path = getenv("HEADGATE_MALLOC_COUNTS");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;

    if (fd < 0) {
        return;
    }
    void *shared = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED) {
        counts = shared;
    }
    close(fd);
}

static void count_allocation(void)
{
    atomic_fetch_add_explicit(&counts->allocations, 1, memory_order_relaxed);
}

void *malloc(size_t size)
{
    count_allocation();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    count_allocation();
    return __libc_calloc(count, size);
}

void *realloc(void *data, size_t size)
{
    count_allocation();
    return __libc_realloc(data, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    count_allocation();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **data, size_t alignment, size_t size)
{
    count_allocation();
    *data = __libc_memalign(alignment, size);
    return *data != NULL ? 0 : ENOMEM;
}

void free(void *data)
{
    atomic_fetch_add_explicit(&counts->frees, 1, memory_order_relaxed);
    __libc_free(data);
}
