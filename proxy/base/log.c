/*
 * The log's destination and its lines.
 *
 * The destination is a descriptor number: standard error, or a slot that is opened once and from then on only replaced
 * by dup3(). A thread that has read the number may thus write at any moment: what it writes goes to the old file or to
 * the new one, never to a stranger that was given the number of a closed file.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 2048 /* with its newline */
#define CUT_MARK "..."
#define LIMITER_PERIOD_US 1000000

static const char *const level_names[] = {"debug", "info", "warning", "error"};

static struct {
    pthread_mutex_t opening; /* held by log_open() and log_close() only, never while a line is written */
    atomic_int descriptor;
    atomic_int level;
    atomic_ullong lost; /* lines that could not be written since the last that could */
    atomic_bool torn;   /* the last write was cut short: the file does not end with a newline */
} destination = {PTHREAD_MUTEX_INITIALIZER, STDERR_FILENO, LOG_LEVEL_INFO, 0, false};

/* ---- Destination ---- */

static bool replace(int slot, int descriptor)
{
    int result;
    do {
        result = dup3(descriptor, slot, O_CLOEXEC);
    } while (result < 0 && (errno == EINTR || errno == EBUSY));
    return result >= 0;
}

/* Gives the slot up to standard error, but keeps it open for threads that still write to its number. */
static bool use_standard_error(void)
{
    int slot = atomic_load(&destination.descriptor);
    return slot == STDERR_FILENO || replace(slot, STDERR_FILENO);
}

/* O_NONBLOCK matters for a FIFO only: nobody reading it must neither hold up the start nor, later, a worker. */
static bool use_file(const char *path)
{
    int descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
    if (descriptor < 0) {
        return false;
    }
    int slot = atomic_load(&destination.descriptor);
    if (slot == STDERR_FILENO) {
        atomic_store(&destination.descriptor, descriptor);
        return true;
    }
    bool replaced = replace(slot, descriptor);
    int error = errno;
    close(descriptor);
    errno = error;
    return replaced;
}

/* Whether the file has a line that is not whole, as a full disk leaves it. What cannot be read is taken for whole. */
static bool ends_torn(const char *path)
{
    struct stat status;
    bool is_file = stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
    int descriptor = is_file ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    char last = '\n';

    if (descriptor < 0) {
        return false;
    }
    bool is_read = pread(descriptor, &last, 1, status.st_size - 1) == 1;
    close(descriptor);
    return is_read && last != '\n';
}

bool log_open(const char *path, enum log_level level)
{
    pthread_mutex_lock(&destination.opening);
    bool is_torn = *path != '\0' && ends_torn(path);
    bool opened = *path == '\0' ? use_standard_error() : use_file(path);
    if (opened) {
        atomic_store(&destination.level, (int)level);
        atomic_store(&destination.torn, is_torn);
    }
    pthread_mutex_unlock(&destination.opening);
    return opened;
}

/* The one place that frees the slot's number, so it is for the end, when no other thread logs any more. */
void log_close(void)
{
    pthread_mutex_lock(&destination.opening);
    int slot = atomic_exchange(&destination.descriptor, STDERR_FILENO);
    if (slot != STDERR_FILENO) {
        close(slot);
    }
    pthread_mutex_unlock(&destination.opening);
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&destination.level, memory_order_relaxed);
}

/* ---- Lines ---- */

/* For whom the thread works; NULL: for nobody in particular. */
static _Thread_local const char *thread_server;

/* bytes[0..length) is the line so far; room for the mark of a cut line and the newline is always left. */
struct line {
    size_t length;
    bool cut;
    char bytes[LINE_BYTES];
};

static void append(struct line *line, const char *text, size_t length)
{
    if (line->cut || length > LINE_BYTES - line->length - sizeof CUT_MARK) {
        line->cut = true;
        return;
    }
    memcpy(line->bytes + line->length, text, length);
    line->length += length;
}

/* Everything but printable ASCII is escaped: some terminals obey bytes above 0x7f, too. */
static void append_escaped(struct line *line, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte >= ' ' && byte < 0x7f) {
            append(line, text, 1);
            continue;
        }
        const char *named = byte == '\n' ? "\\n" : byte == '\r' ? "\\r" : byte == '\t' ? "\\t" : NULL;
        char escape[5];
        snprintf(escape, sizeof escape, "\\x%02x", byte);
        append(line, named != NULL ? named : escape, named != NULL ? 2 : 4);
    }
}

void log_name_server(const char *name)
{
    thread_server = name;
}

static void append_head(struct line *line, enum log_level level, const char *module)
{
    struct timespec now;
    struct tm utc;
    char text[64];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    append(line, text, length);
    snprintf(text, sizeof text, ".%06ldZ %-5s ", now.tv_nsec / 1000, level_names[level]);
    append(line, text, strlen(text));
    append_escaped(line, module);
    append(line, ": ", 2);
    if (thread_server != NULL) {
        append(line, "[", 1);
        append_escaped(line, thread_server);
        append(line, "] ", 2);
    }
}

static void finish(struct line *line)
{
    if (line->cut) {
        memcpy(line->bytes + line->length, CUT_MARK, strlen(CUT_MARK));
        line->length += strlen(CUT_MARK);
    }
    line->bytes[line->length++] = '\n';
}

__attribute__((format(printf, 4, 0))) static void compose(struct line *line, enum log_level level, const char *module,
                                                          const char *format, va_list arguments)
{
    char text[LINE_BYTES];
    line->length = 0;
    line->cut = false;
    int length = vsnprintf(text, sizeof text, format, arguments);
    append_head(line, level, module);
    append_escaped(line, length < 0 ? "(a message that cannot be formatted)" : text);
    line->cut = line->cut || length >= (int)sizeof text;
    finish(line);
}

/* ---- Writing ---- */

/* A full pipe or a dead one must not hold up the program, nor raise SIGPIPE. */
static bool writable(int descriptor)
{
    struct pollfd poller = {.fd = descriptor, .events = POLLOUT};
    return poll(&poller, 1, 0) == 1 && (poller.revents & (POLLERR | POLLNVAL)) == 0;
}

static bool write_bytes(const char *bytes, size_t length)
{
    int descriptor = atomic_load(&destination.descriptor);
    if (!writable(descriptor)) {
        return false;
    }
    ssize_t written;
    do {
        written = write(descriptor, bytes, length);
    } while (written < 0 && errno == EINTR);
    if (written > 0) {
        atomic_store(&destination.torn, (size_t)written < length);
    }
    return written == (ssize_t)length;
}

/* After a line that was cut short, as by a full disk, the next one starts on a line of its own. */
static bool write_line(const struct line *line)
{
    if (!atomic_load(&destination.torn)) {
        return write_bytes(line->bytes, line->length);
    }
    char mended[LINE_BYTES + 1] = "\n";
    memcpy(mended + 1, line->bytes, line->length);
    return write_bytes(mended, line->length + 1);
}

__attribute__((format(printf, 2, 3))) static bool write_notice(enum log_level level, const char *format, ...)
{
    struct line line;
    va_list arguments;
    va_start(arguments, format);
    compose(&line, level, "log", format, arguments);
    va_end(arguments);
    return write_line(&line);
}

/* Writes line, and before it how many were lost, if any were. A line that cannot be written is lost and counted. */
static void put(const struct line *line)
{
    unsigned long long lost = atomic_exchange(&destination.lost, 0);
    bool announced = lost == 0 || write_notice(LOG_LEVEL_WARNING, "%llu lines before this could not be written", lost);
    if (!announced) {
        atomic_fetch_add(&destination.lost, lost);
    }
    if (!announced || !write_line(line)) {
        atomic_fetch_add(&destination.lost, 1);
    }
}

void log_write(enum log_level level, const char *module, const char *format, ...)
{
    if (!log_enabled(level)) {
        return;
    }
    int error = errno; /* callers may log between a call and looking at its error */
    struct line line;
    va_list arguments;
    va_start(arguments, format);
    compose(&line, level, module, format, arguments);
    va_end(arguments);
    put(&line);
    errno = error;
}

bool log_limiter_take(struct log_limiter *limiter, int64_t now_us, uint64_t *suppressed)
{
    if (now_us < limiter->next_us) {
        limiter->suppressed++;
        return false;
    }
    *suppressed = limiter->suppressed;
    *limiter = (struct log_limiter){.next_us = now_us + LIMITER_PERIOD_US};
    return true;
}
