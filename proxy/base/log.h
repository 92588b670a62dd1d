/*
 * The log: one line an event, with time, level and module, to standard error or a file. Thread-safe; a line is written
 * by one write(2). The only process-wide state is the destination, set at start and swapped on reload; a thread has the
 * name of the server that it works for.
 */
#ifndef HEADGATE_LOG_H
#define HEADGATE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };

/* Opens path for appending ("" is standard error) and takes lines of at least that level. False, with errno set and the
 * old destination kept, if the file cannot be opened. Call again to reopen (log rotation) or to change the level. */
bool log_open(const char *path, enum log_level level);
void log_close(void);

/* What this thread logs from now on says that it is of that one of several servers. name: "cache"; it must outlive the
 * thread. */
void log_name_server(const char *name);

bool log_enabled(enum log_level level);

/* format as printf; the line needs no newline. Control characters in it are escaped, so that no client can forge a
 * line. A line over 2 KiB is cut. */
void log_write(enum log_level level, const char *module, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define log_debug(module, ...)                                                                                         \
    (log_enabled(LOG_LEVEL_DEBUG) ? log_write(LOG_LEVEL_DEBUG, module, __VA_ARGS__) : (void)0)
#define log_info(module, ...) log_write(LOG_LEVEL_INFO, module, __VA_ARGS__)
#define log_warning(module, ...) log_write(LOG_LEVEL_WARNING, module, __VA_ARGS__)
#define log_error(module, ...) log_write(LOG_LEVEL_ERROR, module, __VA_ARGS__)

/* For what could repeat at the rate of requests: at most one line a second from each call site's limiter. Returns true
 * when a line may be written; *suppressed then says how many were not since the last. now_us: monotonic µs. */
struct log_limiter {
    int64_t next_us;
    uint64_t suppressed;
};
bool log_limiter_take(struct log_limiter *limiter, int64_t now_us, uint64_t *suppressed);

#endif
