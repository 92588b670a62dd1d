/* Of a tree with mutants: which is active, and where is noted what was reached, both from the environment. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char unshared[MUTANTS_MOST];
unsigned char *mutants_reached = unshared;
int mutants_active;

__attribute__((constructor)) static void mutants_begin(void)
{
    const char *number = getenv("HEADGATE_MUTANT");
    const char *path = getenv("HEADGATE_MUTANTS_REACHED");

    mutants_active = number != NULL ? atoi(number) : 0;
    int file = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *shared = mmap(NULL, MUTANTS_MOST, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        mutants_reached = shared != MAP_FAILED ? shared : unshared;
        close(file);
    }
}
