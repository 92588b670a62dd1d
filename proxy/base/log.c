/*
 * The log's destination and its lines.
 *
 * The destination is a descriptor number: standard error, or a slot that is opened once and from then on only replaced
 * by dup3(). A thread that has read the number may thus write at any moment: what it writes goes to the old file or to
 * the new one, never to a stranger that was given the number of a closed file.
 */
#include "base/log_private.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LIMITER_PERIOD_US 1000000
#define SYSLOG_SOCKET "/dev/log"
/* How often it is tried to reach a system's log that has gone. */
#define SYSLOG_RETRY_US ((int64_t)1000000)

static struct {
    pthread_mutex_t opening; /* held by log_open() and log_close() only, never while a line is written */
    atomic_int descriptor;
    atomic_int level;
    atomic_int format;
    atomic_bool is_syslog;
    _Atomic int64_t syslog_tried_us;
    atomic_ullong lost; /* lines that could not be written since the last that could */
    atomic_bool torn;   /* the last write was cut short: the file does not end with a newline */
    atomic_int copies;  /* where errors go, too; -1: nowhere */
    _Atomic(const char *) copy_prefix;
} destination = {
    .opening = PTHREAD_MUTEX_INITIALIZER, .descriptor = STDERR_FILENO, .level = LOG_LEVEL_INFO, .copies = -1};

/* ---- Destination ---- */

static bool replace(int slot, int descriptor)
{
    int result;
    do {
        result = dup3(descriptor, slot, O_CLOEXEC);
    } while (result < 0 && (errno == EINTR || errno == EBUSY));
    return result >= 0;
}

/* Takes descriptor for its own. */
static bool use_descriptor(int descriptor)
{
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

/* A terminal or a pipe that nobody reads is written to without waiting. O_NONBLOCK would hold for all who share the
 * descriptor, as a shell does: so it is opened anew, once, as root may have to. Where that is not allowed, as of
 * another user's terminal, and for what else it may be, the slot is given up to it, but kept open for threads that
 * still write to its number. */
static bool use_standard_error(void)
{
    int slot = atomic_load(&destination.descriptor), descriptor = -1;
    struct stat status, now;
    bool is_known = fstat(STDERR_FILENO, &status) == 0 && fstat(slot, &now) == 0;

    if (slot != STDERR_FILENO && is_known && status.st_dev == now.st_dev && status.st_ino == now.st_ino) {
        return true;
    }
    if (is_known && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode))) {
        descriptor = open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    }
    return descriptor >= 0 ? use_descriptor(descriptor) : slot == STDERR_FILENO || replace(slot, STDERR_FILENO);
}

/* Where a link of another user's leads, that user says, and to any file that is ours. */
static bool may_follow(const char *path)
{
    struct stat link;

    return lstat(path, &link) == 0 && S_ISLNK(link.st_mode) && (link.st_uid == 0 || link.st_uid == geteuid());
}

/* O_NONBLOCK matters for a FIFO only: nobody reading it must neither hold up the start nor, later, a worker. */
static bool use_file(const char *path)
{
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (may_follow(path) ? 0 : O_NOFOLLOW);
    int descriptor = open(path, flags, 0640);

    return descriptor >= 0 && use_descriptor(descriptor);
}

/* Datagrams that are never waited for, unlike those of syslog(3): a log that hangs must not hold up a worker. */
static bool use_syslog(void)
{
    const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SYSLOG_SOCKET};
    int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (descriptor < 0) {
        return false;
    }
    if (connect(descriptor, (const struct sockaddr *)&address, sizeof address) != 0) {
        int error = errno;
        close(descriptor);
        errno = error;
        return false;
    }
    return use_descriptor(descriptor);
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

bool log_is_file(const char *path)
{
    return *path != '\0' && strcmp(path, LOG_SYSLOG) != 0;
}

void log_set_format(enum log_format format)
{
    atomic_store(&destination.format, (int)format);
}

bool log_open(const char *path, enum log_level level)
{
    bool is_syslog = strcmp(path, LOG_SYSLOG) == 0;

    pthread_mutex_lock(&destination.opening);
    bool is_torn = log_is_file(path) && ends_torn(path);
    bool opened = is_syslog ? use_syslog() : *path == '\0' ? use_standard_error() : use_file(path);
    if (opened) {
        atomic_store(&destination.is_syslog, is_syslog);
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
    atomic_store(&destination.is_syslog, false);
    if (slot != STDERR_FILENO) {
        close(slot);
    }
    pthread_mutex_unlock(&destination.opening);
}

void log_copy_errors(int descriptor, const char *prefix)
{
    atomic_store(&destination.copy_prefix, prefix);
    atomic_store(&destination.copies, descriptor);
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&destination.level, memory_order_relaxed);
}

/* For whom the thread works; NULL: for nobody in particular. */
static _Thread_local const char *thread_server;

void log_name_server(const char *name)
{
    thread_server = name;
}

/* ---- Writing ---- */

/* A full pipe or a dead one must not hold up the program, nor raise SIGPIPE. False with errno set. */
static bool writable(int descriptor)
{
    struct pollfd poller = {.fd = descriptor, .events = POLLOUT};
    bool is_ready = poll(&poller, 1, 0) == 1;
    errno = is_ready ? EPIPE : EAGAIN;
    return is_ready && (poller.revents & (POLLERR | POLLNVAL)) == 0;
}

static bool write_bytes(const char *bytes, size_t length)
{
    int descriptor = atomic_load(&destination.descriptor);
    if (!writable(descriptor)) {
        return false;
    }
    ssize_t written = TEMP_FAILURE_RETRY(send(descriptor, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL));
    if (written < 0 && errno == ENOTSOCK) {
        written = TEMP_FAILURE_RETRY(write(descriptor, bytes, length));
    }
    if (written > 0) {
        atomic_store(&destination.torn, (size_t)written < length);
    }
    return written == (ssize_t)length;
}

/* The system's log was started anew: its socket is another one. */
static void reach_syslog_again(void)
{
    int64_t now_us = clock_now_us(), tried_us = atomic_load(&destination.syslog_tried_us);
    bool is_time = now_us - tried_us >= SYSLOG_RETRY_US &&
                   atomic_compare_exchange_strong(&destination.syslog_tried_us, &tried_us, now_us);

    if (is_time && pthread_mutex_trylock(&destination.opening) == 0) {
        if (atomic_load(&destination.is_syslog)) {
            use_syslog();
        }
        pthread_mutex_unlock(&destination.opening);
    }
}

static bool write_datagram(const struct log_line *line)
{
    if (write_bytes(line->bytes, line->length)) {
        return true;
    }
    if (errno == EAGAIN) {
        return false;
    }
    reach_syslog_again();
    return write_bytes(line->bytes, line->length);
}

/* After a line that was cut short, as by a full disk, the next one starts on a line of its own. */
static bool write_line(const struct log_line *line)
{
    if (atomic_load(&destination.is_syslog)) {
        return write_datagram(line);
    }
    if (!atomic_load(&destination.torn)) {
        return write_bytes(line->bytes, line->length);
    }
    char mended[LOG_LINE_BYTES + 1] = "\n";
    memcpy(mended + 1, line->bytes, line->length);
    return write_bytes(mended, line->length + 1);
}

static struct log_shape shape_about(const struct log_subject *about)
{
    return (struct log_shape){.format = (enum log_format)atomic_load(&destination.format),
                              .is_syslog = atomic_load(&destination.is_syslog),
                              .server = thread_server,
                              .about = about};
}

__attribute__((format(printf, 2, 3))) static bool write_notice(enum log_level level, const char *format, ...)
{
    struct log_line line;
    va_list arguments;
    va_start(arguments, format);
    log_line_compose(&line, shape_about(NULL), level, "log", 0, format, arguments);
    va_end(arguments);
    return write_line(&line);
}

/* Writes line, and before it how many were lost, if any were. A line that cannot be written is lost and counted. */
static void put(const struct log_line *line)
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

/* What cannot be sent at once is not sent: it is in the log. */
__attribute__((format(printf, 1, 0))) static void copy_error(const char *format, va_list arguments)
{
    int descriptor = atomic_load(&destination.copies);
    char text[512];

    if (descriptor < 0) {
        return;
    }
    int prefix = snprintf(text, sizeof text, "%s", atomic_load(&destination.copy_prefix));
    int length = vsnprintf(text + prefix, sizeof text - (size_t)prefix, format, arguments);
    size_t size = length > 0 ? (size_t)(prefix + length) : 0;
    ssize_t sent = send(descriptor, text, size < sizeof text ? size : sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

static void write_wanted(enum log_level level, const struct log_subject *about, const char *module, const char *format,
                         va_list arguments) __attribute__((format(printf, 4, 0)));

static void write_wanted(enum log_level level, const struct log_subject *about, const char *module, const char *format,
                         va_list arguments)
{
    uint64_t suppressed = 0;
    bool is_wanted =
        log_enabled(level) && (level == LOG_LEVEL_DEBUG || log_bound_take(module, format, clock_now_us(), &suppressed));

    if (!is_wanted) {
        return;
    }
    int error = errno; /* callers may log between a call and looking at its error */
    struct log_line line;
    va_list again;
    va_copy(again, arguments);
    log_line_compose(&line, shape_about(about), level, module, suppressed, format, arguments);
    put(&line);
    if (level == LOG_LEVEL_ERROR) {
        copy_error(format, again);
    }
    va_end(again);
    errno = error;
}

void log_write(enum log_level level, const char *module, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    write_wanted(level, NULL, module, format, arguments);
    va_end(arguments);
}

void log_write_about(enum log_level level, const struct log_subject *about, const char *module, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    write_wanted(level, about, module, format, arguments);
    va_end(arguments);
}

void log_last_words(const char *text)
{
    bool is_json = atomic_load(&destination.format) == LOG_FORMAT_JSON;
    const char *head = is_json ? "{\"level\":\"error\",\"module\":\"main\",\"message\":\"" : "error main: ";
    char line[512], *end = stpcpy(stpcpy(line, head), text);

    end = stpcpy(end, is_json ? "\"}\n" : "\n");
    (void)write_bytes(line, (size_t)(end - line));
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
