/*
 * Another calendar: a library to be preloaded, whose CLOCK_REALTIME, gettimeofday() and time() are ahead of the
 * system's by the first number of seconds in the file that HEADGATE_TEST_CLOCK is the path of, and whose monotonic
 * clocks are by the second one; it is read anew each time.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long seconds_ahead(bool is_monotonic)
{
    char text[32] = "0";
    char *second = text;
    const char *path = getenv("HEADGATE_TEST_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)!read(fd, text, sizeof text - 1);
        close(fd);
    }
    long first = strtol(text, &second, 10);
    return is_monotonic ? atol(second) : first;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, clock, time);

    bool is_monotonic = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;

    if (result == 0 && (is_monotonic || clock == CLOCK_REALTIME)) {
        time->tv_sec += seconds_ahead(is_monotonic);
    }
    return (int)result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);

    (void)zone;
    *time = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return result;
}

time_t time(time_t *out)
{
    struct timespec now;
    time_t result = clock_gettime(CLOCK_REALTIME, &now) == 0 ? now.tv_sec : -1;

    if (out != NULL) {
        *out = result;
    }
    return result;
}
