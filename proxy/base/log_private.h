/*
 * What the files of the log share:
 *
 *   log.c        where lines go, and how they get there
 *   log_line.c   what a line looks like
 *   log_bound.c  how many lines of a kind there may be
 */
#ifndef HEADGATE_LOG_PRIVATE_H
#define HEADGATE_LOG_PRIVATE_H

#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>

#define LOG_LINE_BYTES 2048 /* with its newline */

/* bytes[0..length) is the line; room for what ends it is always left. */
struct log_line {
    size_t length;
    size_t reserve; /* bytes that are kept for its end */
    bool cut;
    char bytes[LOG_LINE_BYTES];
};

struct log_shape {
    enum log_format format;
    bool is_syslog;                  /* a datagram for the system's log: with its head, and without a newline */
    const char *server;              /* that the line is of; NULL: none in particular */
    const struct log_subject *about; /* NULL: nobody in particular */
};

/* suppressed: how many lines of this kind were not written since the last. */
void log_line_compose(struct log_line *line, struct log_shape shape, enum log_level level, const char *module,
                      uint64_t suppressed, const char *format, va_list arguments) __attribute__((format(printf, 6, 0)));

/*
 * Whether a line of that kind, which is its module and its format, may be written; *suppressed then says how many were
 * not since the last. From any thread. Both texts must stay, as literals do.
 */
bool log_bound_take(const char *module, const char *format, int64_t now_us, uint64_t *suppressed);

#endif
