/* The log: its lines, its destinations, what happens when writing fails, and swapping files under running threads. */
#include "base/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define HEAD "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z "

static char directory[] = "/tmp/headgate-test-XXXXXX";
static char path[64];
static char other_path[64];

static void make_directory(void)
{
    cr_assert_not_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/log", directory);
    snprintf(other_path, sizeof other_path, "%s/other", directory);
}

static void remove_directory(void)
{
    log_close();
    unlink(path);
    unlink(other_path);
    rmdir(directory);
}

TestSuite(log, .init = make_directory, .fini = remove_directory);

static char *contents(const char *name)
{
    FILE *file = fopen(name, "r");
    cr_assert_not_null(file, "%s", name);
    char *text = calloc(1, 4 << 20);
    size_t length = fread(text, 1, (4 << 20) - 1, file);
    fclose(file);
    cr_assert_eq(strlen(text), length, "no NUL bytes in a log");
    return text;
}

static void assert_matches(const char *text, const char *pattern)
{
    regex_t regex;
    cr_assert_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    cr_assert_eq(regexec(&regex, text, 0, NULL, 0), 0, "%s does not match %s", text, pattern);
    regfree(&regex);
}

static void assert_contents(const char *name, const char *pattern)
{
    char *text = contents(name);
    assert_matches(text, pattern);
    free(text);
}

static enum log_level level = LOG_LEVEL_INFO;

static void open_log(const char *name)
{
    cr_assert(log_open(name, level), "%s: %s", name, strerror(errno));
}

/* ---- Lines ---- */

/* By the clock that the log reads; that of time() may be a tick behind it. */
static time_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec;
}

/* The time is UTC whatever TZ says. */
Test(log, time_is_now_in_utc)
{
    setenv("TZ", "Asia/Shanghai", 1);
    tzset();
    open_log(path);
    time_t before = now();
    log_info("m", "x");
    time_t after = now();
    char *text = contents(path);
    struct tm utc = {0};
    cr_assert_not_null(strptime(text, "%Y-%m-%dT%H:%M:%S", &utc));
    time_t logged = timegm(&utc);
    cr_assert(logged >= before && logged <= after, "%s", text);
    free(text);
}

Test(log, control_characters_are_escaped)
{
    open_log(path);
    log_info("a\nb", "%s", "x\r\n2026 error lane: forged\t\x1b[31m\x7f\xc2\x9b\xff.");
    char *text = contents(path);
    const char *expected = "info  a\\nb: x\\r\\n2026 error lane: forged\\t\\x1b[31m\\x7f\\xc2\\x9b\\xff.\n";
    cr_assert_not_null(strstr(text, expected), "%s", text);
    cr_assert_eq(strchr(text, '\n'), text + strlen(text) - 1, "one line");
    free(text);
}

static char *log_repeated(char byte, size_t count)
{
    char *message = calloc(1, count + 1);
    memset(message, byte, count);
    open_log(path);
    log_info("m", "%s", message);
    free(message);
    return contents(path);
}

/* An escape is four bytes of which none may be cut off. */
Test(log, long_escaped_lines_are_cut)
{
    char *text = log_repeated('\x01', 2000);
    cr_assert_leq(strlen(text), 2048);
    cr_assert_gt(strlen(text), 2044);
    cr_assert_str_eq(text + strlen(text) - 8, "\\x01...\n");
    free(text);
}

/* ---- Destinations ---- */

Test(log, failed_opening_keeps_the_old)
{
    open_log(path);
    errno = 0;
    cr_assert_not(log_open("/nonexistent/log", LOG_LEVEL_ERROR));
    cr_assert_eq(errno, ENOENT);
    cr_assert(log_enabled(LOG_LEVEL_INFO), "the level, too");
    log_info("m", "goes on");
    assert_contents(path, "m: goes on\n$");
    cr_assert_not(log_open(directory, LOG_LEVEL_INFO));
    cr_assert_eq(errno, EISDIR);
}

/* A log that is opened over and over holds one descriptor. */
Test(log, descriptors_do_not_leak)
{
    open_log(path);
    int before = dup(0);
    close(before);
    for (int i = 0; i < 50; i++) {
        open_log(i % 3 == 0 ? "" : i % 3 == 1 ? path : other_path);
        cr_assert_not(log_open("/nonexistent/log", LOG_LEVEL_INFO));
    }
    int after = dup(0);
    close(after);
    cr_assert_eq(before, after);
}

Test(log, descriptor_is_closed_on_exec)
{
    int lowest = dup(0);
    close(lowest);
    open_log(path);
    cr_assert_eq(fcntl(lowest, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    open_log(other_path);
    cr_assert_eq(fcntl(lowest, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

/* ---- Failing writes ---- */

/* A file that may not grow takes half a line: the next line that fits starts on a line of its own. */
Test(log, torn_line_is_mended)
{
    signal(SIGXFSZ, SIG_IGN);
    open_log(path);
    log_info("m", "whole");
    char *text = contents(path);
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit small = {.rlim_cur = strlen(text) + 10, .rlim_max = limit.rlim_max};
    free(text);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    log_info("m", "torn");
    log_info("m", "lost");
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    log_info("m", "written");
    assert_contents(path, "m: whole\n[-0-9]{10}\n[^\n]*log: 2 lines before this could not be written\n[^\n]*m: "
                          "written\n$");
}

/* A reload, or the next start, finds what a full disk has left. */
Test(log, torn_line_is_mended_after_reopening)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fputs("half a li", file) >= 0 && fclose(file) == 0, true);
    open_log(path);
    log_info("m", "written");
    assert_contents(path, "^half a li\n[^\n]* info  m: written\n$");
    open_log(path);
    log_info("m", "again");
    assert_contents(path, "m: written\n[^\n]*m: again\n$");
    open_log(other_path);
    log_info("m", "fresh");
    assert_contents(other_path, HEAD "info  m: fresh\n$");
}

static void read_on(int reader, char *text)
{
    size_t length = strlen(text);
    ssize_t got = read(reader, text + length, (1 << 20) - 1 - length);
    cr_assert_gt(got, 0);
    text[length + (size_t)got] = '\0';
}

/* As standard error, which nobody reads: lines are lost, and the program goes on. */
static void assert_never_waited_for(int reader, int writer)
{
    cr_assert_eq(dup2(writer, STDERR_FILENO), STDERR_FILENO);
    cr_assert(log_open("", LOG_LEVEL_DEBUG));
    for (int i = 0; i < 5000; i++) {
        log_debug("m", "line %d", i);
    }
    cr_assert_eq(fcntl(writer, F_GETFL) & O_NONBLOCK, 0, "others write to it, too, and may mean to wait");
    char *text = calloc(1, 1 << 20);
    while (strstr(text, "room again") == NULL) {
        read_on(reader, text);
        log_info("m", "room again");
    }
    assert_matches(text, "m: line 0\r?\n");
    assert_matches(text, "warning log: [0-9]+ lines before this could not be written\r?\n.* info  m: room again");
    free(text);
}

Test(log, full_pipe_or_terminal_does_not_block, .timeout = 30)
{
    int ends[2], master = posix_openpt(O_RDWR | O_NOCTTY);
    cr_assert_eq(pipe(ends), 0);
    assert_never_waited_for(ends[0], ends[1]);
    cr_assert(grantpt(master) == 0 && unlockpt(master) == 0);
    assert_never_waited_for(master, open(ptsname(master), O_RDWR | O_NOCTTY));
}

/* Standard error as a pipe whose reader is gone: no SIGPIPE. */
Test(log, dead_pipe_does_not_kill)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    log_info("m", "nobody reads this");
    open_log(path);
    log_info("m", "alive");
    assert_contents(path, "log: 1 lines before this could not be written\n.*m: alive\n$");
}

/* ---- Threads ---- */

#define THREADS 4
#define LINES 2000

static void *write_lines(void *argument)
{
    const int *number = argument;
    for (int i = 0; i < LINES; i++) {
        log_debug("m", "thread %d line %d.", *number, i);
    }
    return NULL;
}

static void tally(const char *name, int counts[THREADS][LINES])
{
    char *text = contents(name);
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        assert_matches(line, HEAD "debug m: thread [0-9]+ line [0-9]+\\.$");
        int thread = 0;
        int number = 0;
        cr_assert_eq(sscanf(strstr(line, "m: "), "m: thread %d line %d.", &thread, &number), 2);
        cr_assert(thread >= 0 && thread < THREADS && number >= 0 && number < LINES, "%s", line);
        counts[thread][number]++;
    }
    free(text);
}

/* Every line is whole and is in exactly one of the two files, however often they are swapped meanwhile. */
Test(log, swapping_files_loses_and_tears_nothing)
{
    static int counts[THREADS][LINES];
    pthread_t threads[THREADS];
    int numbers[THREADS];
    level = LOG_LEVEL_DEBUG;
    open_log(path);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        cr_assert_eq(pthread_create(&threads[i], NULL, write_lines, &numbers[i]), 0);
    }
    for (int i = 0; i < 200; i++) {
        open_log(i % 2 == 0 ? other_path : path);
        usleep(200);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    tally(path, counts);
    tally(other_path, counts);
    for (int i = 0; i < THREADS * LINES; i++) {
        cr_assert_eq(counts[i / LINES][i % LINES], 1, "thread %d line %d", i / LINES, i % LINES);
    }
}
