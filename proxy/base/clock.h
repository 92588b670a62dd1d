/* Time. All of Headgate's intervals are on the monotonic clock, so that a step of the wall clock moves nothing. */
#ifndef HEADGATE_CLOCK_H
#define HEADGATE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic time in µs since an arbitrary start; never 0, so that 0 can mean "never". */
static inline int64_t clock_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + 1;
}

/* The time by the calendar since 1970 in µs, for what others will read; it may jump. */
static inline int64_t clock_wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static inline int64_t clock_ms_to_us(int64_t milliseconds)
{
    return milliseconds * 1000;
}

#endif
