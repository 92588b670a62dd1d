/*
 * The log: one line an event, with time, level and module, to standard error, a file or the system's log. Thread-safe;
 * a line is written by one write(2), and never waited for: what cannot be written at once is lost, and counted. The
 * only process-wide state is the destination, set at start and swapped on reload, where errors are told, too, and how
 * many lines of each kind there were; a thread has the name of the server that it works for.
 *
 * However often something happens, of each kind of line (its format and module) at most a thousand are written at once
 * and one a second from then on; the next one says how many were not. Lines for debugging are not bounded.
 */
#ifndef HEADGATE_LOG_H
#define HEADGATE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };

/* As text, or each line a JSON object: {"time":…,"level":…,"module":…,"message":…}, with "server" in front of the
 * message where there are several, behind it what the line is about (struct log_subject), and with "suppressed" where
 * lines were not written. All is ASCII in both. */
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

/* In place of a path: the system's log, by its socket /dev/log. */
#define LOG_SYSLOG "syslog"

/* Whether that is the path of a file, and neither "" nor LOG_SYSLOG. */
bool log_is_file(const char *path);

/* Of lines from now on. */
void log_set_format(enum log_format format);

/* Opens path for appending ("" is standard error, LOG_SYSLOG the system's log) and takes lines of at least that level.
 * False, with errno set and the old destination kept, if it cannot be opened. Call again to reopen (log rotation) or to
 * change the level. */
bool log_open(const char *path, enum log_level level);
void log_close(void);

/* What this thread logs from now on says that it is of that one of several servers. name: "cache"; it must outlive the
 * thread. */
void log_name_server(const char *name);

/* Sends the text of each error to that descriptor, too, as a datagram behind the prefix, a constant; -1: no more. */
void log_copy_errors(int descriptor, const char *prefix);

bool log_enabled(enum log_level level);

/* format as printf; the line needs no newline. Control characters in it are escaped, so that no client can forge a
 * line. A line over 2 KiB is cut. */
void log_write(enum log_level level, const char *module, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* An error, for a signal's handler: no time, and none of what locks or allocates. text: a constant of up to 400 bytes
 * with nothing to escape. */
void log_last_words(const char *text);

/*
 * Whom or what a line is about, as fields of their own in JSON; in text the message names them. Texts are needed within
 * the call only, and may hold anything: they are escaped, and of each 64 bytes are shown. NULL, "" and 0: not told.
 */
struct log_subject {
    const char *client; /* its address, and what else it is known by */
    uint64_t client_id;
    const char *name;
    const char *user;
    const char *identity;
    const char *rule;
    uint64_t lane;
};

/* As log_write(), about those. */
void log_write_about(enum log_level level, const struct log_subject *about, const char *module, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

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
