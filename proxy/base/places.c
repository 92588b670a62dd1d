#include "base/places.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <unistd.h>

/* The part of the limit that is each port's. */
#define PORT_PART 20
#define PORT_LEAST 2
#define PORT_MOST 64
/* For what a reload, a log that is opened anew, a name that is looked up, an upgrade, or the question who a peer is may
 * need at once. */
#define BRIEF 8

int places_limit(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < INT_MAX ? (int)limit.rlim_cur : INT_MAX;
}

size_t places_of_port(void)
{
    size_t part = (size_t)places_limit() / PORT_PART;

    return part < PORT_LEAST ? PORT_LEAST : part > PORT_MOST ? PORT_MOST : part;
}

int places_for_all(void)
{
    return places_limit() - 2 * (int)places_of_port() - BRIEF;
}

bool places_are_short(void)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

    if (fd >= 0) {
        close(fd);
    }
    return fd < 0 || fd >= places_for_all();
}
