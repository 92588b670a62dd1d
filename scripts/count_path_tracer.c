/*
 * Loaded into a Headgate that was built with -finstrument-functions (scripts/count-path): writes down which functions
 * are entered, in order. The file that HEADGATE_TRACE names is mapped: a count of what was written, then the entries.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES_MAX ((uint64_t)1 << 20)

struct entry {
    uint64_t thread;
    uint64_t function; /* its address */
};

struct trace {
    _Atomic uint64_t written;
    uint64_t most;
    struct entry entries[];
};

static struct trace *trace;

__attribute__((constructor)) static void open_trace(void)
{
    const char *path = getenv("HEADGATE_TRACE");
    size_t size = sizeof(struct trace) + ENTRIES_MAX * sizeof(struct entry);
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;

    if (fd < 0) {
        return;
    }
    if (ftruncate(fd, (off_t)size) == 0) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        trace = memory != MAP_FAILED ? memory : NULL;
    }
    if (trace != NULL) {
        trace->most = ENTRIES_MAX;
    }
    close(fd);
}

void __cyg_profile_func_enter(void *function, void *caller)
{
    static _Thread_local uint64_t thread;

    (void)caller;
    if (trace == NULL) {
        return;
    }
    if (thread == 0) {
        thread = (uint64_t)syscall(SYS_gettid);
    }
    uint64_t place = atomic_fetch_add(&trace->written, 1) % ENTRIES_MAX;
    trace->entries[place] = (struct entry){thread, (uint64_t)(uintptr_t)function};
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
}
