/* Files that are faulty, among them those that inih by itself would read wrongly without a word. */
#include "conf_file.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define LANES "h.ini:3: [headgate] lanes = 0: is too small; expected a number from 1 to 64"
#define NO_BLANK "line starts with a blank; expected an option at the start of a line, its value on that line"
#define KNOWN "expected a known option, perhaps "

/* A file, and its faults, with line ends between them. */
static const char *const cases[][2] = {
    {"[headgate]\nlog_file = /a\n  threads = 2\n", "h.ini:3: [headgate] threads: line starts with a blank; expected an "
                                                   "option at the start of a line, its value on that "
                                                   "line"},
    {"[headgate]\nupstream_password = a\n\tsecret\n", "h.ini:3: " NO_BLANK},
    {"[headgate]\nthreads 4\nlanes = 0\n",
     "h.ini:2: [headgate] threads: line has no \"=\"; expected option = value, [section] or a # comment\n" LANES},
    {"[headgate]\nthreads = 4\n\nthreads = 5\n",
     "h.ini:4: [headgate] threads = 5: given on line 2 already; expected it once"},
    {"[headgate] threads = 4\nlanes = 2\n",
     "h.ini:1: text after the closing bracket of a section; expected the section alone on its line"},
    {"[headgat]\n", "h.ini:1: [headgat]: unknown section; expected perhaps [headgate]"},
    {"[limits]\nanything = 1\n[headgate]\nthreads = 2\n", "h.ini:1: [limits]: unknown section; expected [headgate]"},
    {"[]\n", "h.ini:1: []: unknown section; expected [headgate]"},
    {"[${HOME}]\n", "h.ini:1: [${HOME}]: unknown section; expected [headgate]"},
    {"[headgate]\n[headgate]\n", "h.ini:2: [headgate]: section stands on line 1 already; expected once"},
    {"[headgate\nthreads = 2\n", "h.ini:1: section has no closing bracket; expected [headgate]"},
    {"threads = 2\n\nlanes = 0\n", "h.ini:1: option stands before any section; expected [headgate] above it\n" LANES},
    {"[headgate]\nmax_client = 5\n",
     "h.ini:2: [headgate] max_client = ********: unknown option; " KNOWN "\"max_clients\""},
    {"[headgate]\nThreads = 5\n", "h.ini:2: [headgate] Threads = ********: unknown option; " KNOWN "\"threads\""},
    {"[headgate]\ncolour = blue\n",
     "h.ini:2: [headgate] colour = ********: unknown option; expected one of the options in "
     "conf/headgate.ini"},
    {"[headgate]\n= 5\n", "h.ini:2: no option stands before the \"=\"; expected option = value"},
    {"[headgate]\nlog_file = a\x1b[2Jb\n",
     "h.ini:2: [headgate] log_file: line holds a control character; expected printable text"},
    {"[headgate]\nlog_file = a\rthreads = 2\n",
     "h.ini:2: [headgate] log_file: line holds a control character; expected printable text"},
    {"[head\x7fgate]\n", "h.ini:1: line holds a control character; expected printable text"},
    {"[headgate]\r\n\r\nlanes = 0\r\n\r\npool = y\r\n",
     LANES "\nh.ini:5: [headgate] pool = y: is not one of the known words; expected shared or session"},
};

/* Loads the bytes, and compares the faults. */
static void assert_lines(const char *bytes, size_t length, const char *lines)
{
    char *copy = strdup(lines), *rest = copy;
    const char *expected[4];
    size_t count = 0;

    for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
        expected[count++] = line;
    }
    assert_faults(bytes, length, count, expected);
    free(copy);
}

Test(conf_faults, are_told_by_line)
{
    static const char with_nul[] = "[headgate]\nthreads = 2\0000\nlanes = 99\n";

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_lines(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    }
    assert_lines(with_nul, sizeof with_nul - 1, "h.ini:2: file holds a NUL byte; expected text");
}

Test(conf_faults, what_only_looks_like_one)
{
    struct conf_file file;

    assert_loads(&file, "[headgate] # comment\nthreads: 2\n   \n\t# comment\n  ; comment\nlanes = 3");
    cr_assert_eq(file.conf->threads, 2);
    cr_assert_eq(file.conf->lanes, 3);
    drop_file(&file);
}

/* Whatever it holds, a long line is one fault on its own line, and nothing of it is read as an option. */
Test(conf_faults, long_lines)
{
    static const char *const starts[] = {"log_file = ", "# ", "[", "upstream_password = threads = 5", ""};
    static const char *const subjects[] = {"[headgate] log_file: ", "", "", "[headgate] upstream_password: ", ""};
    static const size_t lengths[] = {4097, 9000};
    struct conf_file file;
    char section[64];

    for (size_t i = 0; i < 2 * COUNT_OF(starts); i++) {
        const char *start = starts[i / 2];
        char text[20000] = "[headgate]\n";
        strcat(text, start);
        memset(text + strlen(text), 'a', lengths[i % 2] - strlen(start));
        strcat(text, "\r\nlanes = 0\n");
        char *lines =
            conf_format("h.ini:2: %sline of %zu bytes; expected at most 4096\n" LANES, subjects[i / 2], lengths[i % 2]);
        assert_lines(text, strlen(text), lines);
        free(lines);
    }
    char text[8200] = "[headgate]\nlog_file = ";
    memset(text + 22, 'a', 4096 - 11);
    load_file(&file, text);
    cr_assert_not_null(strstr(fault_at(&file, 0), "a...: has 4085 bytes"), "%s", fault_at(&file, 0));
    drop_file(&file);
    snprintf(section, sizeof section, "[%050d]\n", 1);
    assert_fault(section, "h.ini:1: section name of 50 bytes; expected at most 49");
}

Test(conf_faults, files_that_cannot_be_read)
{
    static const char *const files[][2] = {{"/nonexistent/h.ini", "cannot be read: No such file or directory"},
                                           {"/", "is a directory"},
                                           {"/dev/zero", "is not a regular file"}};

    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct conf_faults faults;
        char *expected = conf_format("%s: %s; expected an ini file of at most 1mb", files[i][0], files[i][1]);
        cr_assert_null(conf_load(files[i][0], NULL, &faults));
        cr_assert_eq(faults.count, 1);
        cr_assert_str_eq(faults.lines[0], expected);
        conf_faults_free(&faults);
        free(expected);
    }
}
