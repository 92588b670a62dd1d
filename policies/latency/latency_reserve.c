#include "latency/latency_reserve.h"

#include <sys/mman.h>

void *latency_reserve_new(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED) {
        return NULL;
    }
    /* A kernel without huge pages refuses this, and need not be told. */
    (void)madvise(memory, size, MADV_NOHUGEPAGE);
    return memory;
}

void latency_reserve_free(void *memory, size_t size)
{
    if (memory != NULL) {
        (void)munmap(memory, size);
    }
}
