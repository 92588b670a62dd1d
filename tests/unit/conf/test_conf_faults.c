/* Files that are faulty, among them those that inih by itself would read wrongly. */
#include "conf_file.h"

#include <criterion/criterion.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What inih does by itself, and what conf_load() makes of it ---- */

struct seen {
    int count;
    char section[128];
    char name[128];
    char value[512];
};

static int see(void *user, const char *section, const char *name, const char *value)
{
    struct seen *seen = user;
    seen->count++;
    snprintf(seen->section, sizeof seen->section, "%s", section);
    snprintf(seen->name, sizeof seen->name, "%s", name);
    snprintf(seen->value, sizeof seen->value, "%s", value);
    return 1;
}

static struct seen inih_alone(const char *text, int *result)
{
    struct seen seen = {0};
    *result = ini_parse_string(text, see, &seen);
    return seen;
}

Test(inih, cuts_long_sections)
{
    int result;
    char text[256] = "[";
    memset(text + 1, 's', 50);
    strcat(text, "]\nx = 1\n");
    cr_assert_eq(strlen(inih_alone(text, &result).section), 49, "the trap is there");
    cr_assert_eq(result, 0, "and is silent");
    assert_fault(text, "h.ini:1: section name of 50 bytes; expected at most 49");
}

Test(inih, breaks_long_lines)
{
    int result;
    char text[8200] = "[headgate]\nlog_file = ";
    memset(text + strlen(text), 'a', 250);
    strcat(text, "\n");
    cr_assert_eq(strlen(inih_alone(text, &result).value), 199 - strlen("log_file = "), "the trap is there");
    struct conf_file file;
    assert_loads(&file, text);
    cr_assert_eq(strlen(file.conf->log_file), 250, "but conf_load() takes longer lines");
    drop_file(&file);

    memset(text + 22, 'a', 4096 - 11);
    text[11 + 4096] = '\0';
    strcat(text, "\nthreads = 0\n");
    load_file(&file, text);
    cr_assert_not_null(strstr(fault_at(&file, 0), "log_file = aaa"), "4096 bytes are taken whole");
    cr_assert_not_null(strstr(fault_at(&file, 0), "a...: has 4085 bytes"), "%s", fault_at(&file, 0));
    cr_assert_not_null(strstr(fault_at(&file, 1), "h.ini:3: [headgate] threads = 0"));
    drop_file(&file);
}

Test(inih, line_length_bound)
{
    char text[4200] = "[headgate]\n#";
    memset(text + strlen(text), 'a', 4095);
    struct conf_file file;
    assert_loads(&file, text);
    drop_file(&file);
    strcat(text, "a");
    assert_fault(text, "h.ini:2: line of 4097 bytes; expected at most 4096");
}

/* Whatever it holds, a long line is one fault on its own line, and nothing of it is read as an option. */
Test(inih, long_lines_are_faults)
{
    static const char *const starts[] = {"log_file = ", "# ", "[", "upstream_password = threads = 5", ""};
    static const char *const subjects[] = {"[headgate] log_file: ", "", "", "[headgate] upstream_password: ", ""};
    for (size_t i = 0; i < COUNT_OF(starts); i++) {
        char text[20000] = "[headgate]\n";
        strcat(text, starts[i]);
        memset(text + strlen(text), 'a', 9000 - strlen(starts[i]));
        strcat(text, "\r\nthreads = 0\n");
        char *fault = conf_format("h.ini:2: %sline of 9000 bytes; expected at most 4096", subjects[i]);
        const char *const expected[] = {
            fault, "h.ini:3: [headgate] threads = 0: is too small; expected a number from 1 to 64"};
        assert_faults(text, strlen(text), 2, expected);
        free(fault);
    }
}

Test(inih, joins_indented_lines)
{
    int result;
    const char *text = "[headgate]\nlog_file = /a\n  threads = 2\n";
    struct seen seen = inih_alone(text, &result);
    cr_assert_str_eq(seen.name, "log_file", "the trap is there");
    cr_assert_str_eq(seen.value, "threads = 2");
    assert_fault(text, "h.ini:3: [headgate] threads: line starts with a blank; expected an option at the start of a "
                       "line, its value on that line");
    assert_fault(
        "[headgate]\nupstream_password = a\n\tsecret\n",
        "h.ini:3: line starts with a blank; expected an option at the start of a line, its value on that line");
    struct conf_file file;
    assert_loads(&file, "[headgate]\nthreads = 2\n   \n\t# comment\n  ; comment\nlanes = 3\n");
    cr_assert_eq(file.conf->threads, 2);
    cr_assert_eq(file.conf->lanes, 3);
    drop_file(&file);
}

Test(inih, cuts_inline_comments)
{
    int result;
    const char *text = "[headgate]\nlog_file = a ;b\n";
    cr_assert_str_eq(inih_alone(text, &result).value, "a", "the trap is there");
    assert_refused("log_file", "a ;b", "log_file = a ;b: holds a ';' or '#' that could be a comment");
    cr_assert_eq(load_number("threads", "2 ; two"), 2);
    cr_assert_eq(load_number("threads", "2\t# two"), 2);
    assert_refused("threads", "2;two", "is not a whole number");
}

Test(inih, goes_on_after_errors)
{
    int result;
    const char *text = "[headgate]\nthreads 4\nlanes = 0\n";
    struct seen seen = inih_alone(text, &result);
    cr_assert_eq(result, 2);
    cr_assert_eq(seen.count, 1, "the trap is there: later lines are read all the same");
    const char *const expected[] = {
        "h.ini:2: [headgate] threads: line has no \"=\"; expected option = value, [section] or a # comment",
        "h.ini:3: [headgate] lanes = 0: is too small; expected a number from 1 to 64"};
    assert_faults(text, strlen(text), 2, expected);
}

Test(inih, says_nothing_of_duplicates)
{
    int result;
    const char *text = "[headgate]\nthreads = 4\n\nthreads = 5\n";
    cr_assert_eq(inih_alone(text, &result).count, 2);
    cr_assert_eq(result, 0, "the trap is there");
    assert_fault(text, "h.ini:4: [headgate] threads = 5: given on line 2 already; expected it once");
}

Test(inih, ignores_text_after_a_section)
{
    int result;
    const char *text = "[headgate] threads = 4\nlanes = 2\n";
    cr_assert_eq(inih_alone(text, &result).count, 1);
    cr_assert_eq(result, 0, "the trap is there");
    assert_fault(text, "h.ini:1: text after the closing bracket of a section; expected the section alone on its line");
    struct conf_file file;
    assert_loads(&file, "[headgate] # comment\nlanes = 2\n");
    cr_assert_eq(file.conf->lanes, 2);
    drop_file(&file);
}

Test(inih, does_not_mention_empty_sections)
{
    int result;
    const char *text = "[headgat]\n";
    cr_assert_eq(inih_alone(text, &result).count, 0);
    cr_assert_eq(result, 0, "the trap is there");
    assert_fault(text, "h.ini:1: [headgat]: unknown section; expected perhaps [headgate]");
}

Test(inih, stops_at_nul)
{
    const char text[] = "[headgate]\nthreads = 2\0000\nlanes = 99\n";
    const char *const expected[] = {"h.ini:2: file holds a NUL byte; expected text"};
    assert_faults(text, sizeof text - 1, 1, expected);
}

/* ---- Faults of files ---- */

Test(conf, sections)
{
    assert_fault("[limits]\nanything = 1\n[headgate]\nthreads = 2\n",
                 "h.ini:1: [limits]: unknown section; expected [headgate]");
    assert_fault("[]\n", "h.ini:1: []: unknown section; expected [headgate]");
    assert_fault("[headgate]\n[headgate]\n", "h.ini:2: [headgate]: section stands on line 1 already; expected once");
    assert_fault("[headgate\nthreads = 2\n", "h.ini:1: section has no closing bracket; expected [headgate]");
    const char *text = "threads = 2\nlanes = 0\n";
    const char *const expected[] = {"h.ini:1: option stands before any section; expected [headgate] above it",
                                    "h.ini:2: [headgate] lanes = 0: is too small; expected a number from 1 to 64"};
    assert_faults(text, strlen(text), 2, expected);
}

Test(conf, unknown_options)
{
    assert_fault("[headgate]\nmax_client = 5\n",
                 "h.ini:2: [headgate] max_client = ********: unknown option; expected a known option, perhaps "
                 "\"max_clients\"");
    assert_fault(
        "[headgate]\nThreads = 5\n",
        "h.ini:2: [headgate] Threads = ********: unknown option; expected a known option, perhaps \"threads\"");
    assert_fault("[headgate]\ncolour = blue\n",
                 "h.ini:2: [headgate] colour = ********: unknown option; expected one of the options in "
                 "conf/headgate.ini");
    assert_fault("[headgate]\n= 5\n", "h.ini:2: no option stands before the \"=\"; expected option = value");
}

Test(conf, control_characters)
{
    assert_fault("[headgate]\nlog_file = a\x1b[2Jb\n",
                 "h.ini:2: [headgate] log_file: line holds a control character; expected printable text");
    assert_fault("[headgate]\nlog_file = a\rthreads = 2\n",
                 "h.ini:2: [headgate] log_file: line holds a control character; expected printable text");
    assert_fault("[head\x7fgate]\n", "h.ini:1: line holds a control character; expected printable text");
}

/* No fault of any kind may show a secret, even one that stands under a misspelt name. */
Test(conf, secrets_are_never_shown)
{
    static const char *const lines[] = {
        "upstream_password = hunter2 ;x",
        "upstream_password = \"hunter2",
        "admin_password = x\nadmin_password = hunter2",
        "upstream_pasword = hunter2",
        "password = hunter2",
        "redis_auth = hunter2",
        "upstream_password hunter2",
        "upstream_password = a\n hunter2",
        "upstream_password = hunter2\x01",
        "hunter2",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        struct conf_file file;
        char *text = conf_format("[headgate]\n%s\n", lines[i]);
        load_file(&file, text);
        cr_assert_eq(file.faults.count, 1, "%s", text);
        cr_assert_null(strstr(file.faults.lines[0], "hunter2"), "%s", file.faults.lines[0]);
        drop_file(&file);
        free(text);
    }
}

Test(conf, hidden_secret_is_not_taken_for_a_secret)
{
    assert_refused("upstream_password", "********", "is what a hidden secret is shown as");
    struct conf_file file;
    assert_loads(&file, "[headgate]\nupstream_password = \"********\"\n");
    cr_assert_str_eq(file.conf->upstream_password, "********");
    drop_file(&file);
}

Test(conf, all_faults_at_once)
{
    const char *text = "[headgate]\r\nthreads = 0\r\npool = x\r\n\r\ntypo = 1\r\nlisten = y\r\n";
    struct conf_file file;
    load_file(&file, text);
    cr_assert_eq(file.faults.count, 4);
    static const int lines[] = {2, 3, 5, 6};
    for (size_t i = 0; i < 4; i++) {
        int line = 0;
        cr_assert_eq(sscanf(fault_at(&file, i), "h.ini:%d:", &line), 1);
        cr_assert_eq(line, lines[i]);
    }
    drop_file(&file);
}

Test(conf, long_values_are_cut_in_faults)
{
    char value[400];
    memset(value, '7', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    assert_refused("threads", value, "7...: is too large; expected a number from 1 to 64");
}

Test(conf, unreadable_files)
{
    struct conf_faults faults;
    cr_assert_null(conf_load("/nonexistent/h.ini", NULL, &faults));
    cr_assert_eq(faults.count, 1);
    cr_assert_str_eq(
        faults.lines[0],
        "/nonexistent/h.ini: cannot be read: No such file or directory; expected an ini file of at most 1mb");
    conf_faults_free(&faults);
    cr_assert_null(conf_load("/", NULL, &faults));
    cr_assert_eq(faults.count, 1);
    cr_assert_str_eq(faults.lines[0], "/: is a directory; expected an ini file of at most 1mb");
    conf_faults_free(&faults);
    cr_assert_null(conf_load("/dev/zero", NULL, &faults));
    cr_assert_eq(faults.count, 1);
    cr_assert_str_eq(faults.lines[0], "/dev/zero: is not a regular file; expected an ini file of at most 1mb");
    conf_faults_free(&faults);
}

Test(conf, last_line_without_newline)
{
    struct conf_file file;
    assert_loads(&file, "[headgate]\nthreads: 7");
    cr_assert_eq(file.conf->threads, 7);
    drop_file(&file);
}
