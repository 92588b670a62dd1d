/*
 * Another calendar: a library to be preloaded, whose CLOCK_REALTIME and gettimeofday() are ahead of the system's by the
 * seconds in the file that HEADGATE_TEST_CLOCK is the path of, read anew each time. All other clocks are the system's.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long seconds_ahead(void)
{
    char text[32] = "0";
    const char *path = getenv("HEADGATE_TEST_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)!read(fd, text, sizeof text - 1);
        close(fd);
    }
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, clock, time);

    if (result == 0 && clock == CLOCK_REALTIME) {
        time->tv_sec += seconds_ahead();
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
