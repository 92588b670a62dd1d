#include "preload.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/time.h>

/* A later time is one of the calendar, an earlier one of a monotonic clock, which begins there. */
#define CALENDAR_BEGINS (INT64_C(100000000) * SECOND)
#define MONOTONIC_BEGIN (INT64_C(10000000) * SECOND)

static __thread unsigned looks __attribute__((tls_model("initial-exec")));
static __thread uint64_t looks_turn __attribute__((tls_model("initial-exec")));

static int64_t epoch(void)
{
    return world->epoch + (is_inside() ? own_process()->skew_ns : 0);
}

static int64_t read_clock(clockid_t clock)
{
    bool has_baton = is_inside() && world->baton == self;

    if (has_baton) {
        /* The more somebody looks within a turn, the faster time goes: who waits by looking comes to an end. */
        looks = looks_turn == world->turn ? looks + 1 : 0;
        looks_turn = world->turn;
        world->now += world->look_ns * (1 + (looks >> 10));
    }
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_TAI:
        return world->now + epoch();
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        return world->now + MONOTONIC_BEGIN;
    default: /* processor time: nobody can tell, but it grows */
        return has_baton ? (own()->cpu_ns += 1000) : 0;
    }
}

int64_t ns_of(const struct timespec *time)
{
    return time->tv_sec > INT64_MAX / SECOND - 1 ? NEVER : time->tv_sec * SECOND + time->tv_nsec;
}

int64_t after(int64_t ns)
{
    return ns < 0 || ns >= NEVER - world->now ? NEVER : world->now + ns;
}

int64_t deadline_of(const struct timespec *absolute)
{
    int64_t ns = absolute == NULL ? NEVER : ns_of(absolute);

    return ns == NEVER ? NEVER : ns - (ns >= CALENDAR_BEGINS ? epoch() : MONOTONIC_BEGIN);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (world == NULL) {
        return (int)kernel(SYS_clock_gettime, clock, time);
    }
    int64_t now = read_clock(clock);
    *time = (struct timespec){.tv_sec = now / SECOND, .tv_nsec = now % SECOND};
    return 0;
}

EXPORT int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

EXPORT time_t time(time_t *place)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (place != NULL) {
        *place = now.tv_sec;
    }
    return now.tv_sec;
}

EXPORT int getrusage(__rusage_who_t who, struct rusage *usage)
{
    int status = (int)kernel(SYS_getrusage, who, usage);

    if (world != NULL && status == 0) {
        usage->ru_utime = usage->ru_stime = (struct timeval){0};
    }
    return status;
}

/* ---- sleeping ---- */

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left)
{
    if (!is_inside()) {
        return REAL(clock_nanosleep)(clock, flags, wanted, left);
    }
    int64_t deadline = (flags & TIMER_ABSTIME) != 0 ? deadline_of(wanted) : after(ns_of(wanted));
    if (!give_way(WAIT_TIME, deadline) || world->now >= deadline) {
        return 0;
    }
    if (left != NULL) {
        int64_t rest = deadline - world->now;
        *left = (struct timespec){.tv_sec = rest / SECOND, .tv_nsec = rest % SECOND};
    }
    return EINTR;
}

EXPORT int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    int status = clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);

    errno = status != 0 ? status : errno;
    return status != 0 ? -1 : 0;
}

EXPORT int usleep(useconds_t us)
{
    return nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L}, NULL);
}

EXPORT unsigned sleep(unsigned seconds)
{
    struct timespec left = {0};

    return nanosleep(&(struct timespec){.tv_sec = seconds}, &left) == 0 ? 0 : (unsigned)left.tv_sec;
}

/* LeakSanitizer waits so for what the kernel does in real time, while it holds what other threads may want. */
EXPORT int sched_yield(void)
{
    static __thread uint64_t turn, times;

    if (is_inside()) {
        times = turn == world->turn ? times + 1 : 0;
        turn = world->turn;
        if (times >= 100000) {
            (void)give_way(WAIT_TURN, NEVER);
        }
    }
    return (int)kernel(SYS_sched_yield);
}

EXPORT int setitimer(__itimer_which_t which, const struct itimerval *restrict wanted, struct itimerval *restrict before)
{
    if (!is_inside() || which != ITIMER_REAL) {
        return (int)kernel(SYS_setitimer, which, wanted, before);
    }
    struct process *process = own_process();
    if (before != NULL) {
        *before = (struct itimerval){0};
    }
    int64_t first = wanted->it_value.tv_sec * SECOND + wanted->it_value.tv_usec * 1000;
    process->alarm_ns = first > 0 ? world->now + first : 0;
    process->alarm_interval = wanted->it_interval.tv_sec * SECOND + wanted->it_interval.tv_usec * 1000;
    return 0;
}

EXPORT unsigned alarm(unsigned seconds)
{
    return (unsigned)setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {.tv_sec = seconds}}, NULL);
}

/* ---- randomness ---- */

static void fill(unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)world_draw(&own_process()->random);
    }
}

EXPORT ssize_t getrandom(void *buffer, size_t size, unsigned flags)
{
    if (!is_inside()) {
        return kernel(SYS_getrandom, buffer, size, flags);
    }
    fill(buffer, size);
    return (ssize_t)size;
}

EXPORT int getentropy(void *buffer, size_t size)
{
    return getrandom(buffer, size, 0) == (ssize_t)size ? 0 : -1;
}

/* Redis reads its randomness from there. */
EXPORT FILE *fopen(const char *restrict path, const char *restrict mode)
{
    unsigned char bytes[4096];

    if (!is_inside() || strcmp(path, "/dev/urandom") != 0) {
        return REAL(fopen)(path, mode);
    }
    int fd = memfd_create("random", MFD_CLOEXEC);
    fill(bytes, sizeof bytes);
    (void)!kernel(SYS_write, fd, bytes, sizeof bytes);
    lseek(fd, 0, SEEK_SET);
    return fdopen(fd, "r");
}

EXPORT FILE *fopen64(const char *restrict path, const char *restrict mode)
{
    return fopen(path, mode);
}
