#include "conf_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void load_bytes(struct conf_file *file, const char *bytes, size_t length)
{
    strcpy(file->directory, "/tmp/headgate-test-XXXXXX");
    cr_assert_not_null(mkdtemp(file->directory));
    snprintf(file->path, sizeof file->path, "%s/h.ini", file->directory);
    FILE *out = fopen(file->path, "w");
    cr_assert_not_null(out);
    cr_assert_eq(fwrite(bytes, 1, length, out), length);
    /* It may hold passwords, and a file that others can read is warned of. */
    cr_assert_eq(fchmod(fileno(out), S_IRUSR | S_IWUSR), 0);
    cr_assert_eq(fclose(out), 0);
    cr_assert_eq(chmod(file->path, 0600), 0);
    file->conf = conf_load(file->path, NULL, &file->faults);
    unlink(file->path);
    rmdir(file->directory);
    cr_assert_eq(file->conf == NULL, file->faults.count > 0, "either a configuration or faults");
}

void load_file(struct conf_file *file, const char *text)
{
    load_bytes(file, text, strlen(text));
}

void drop_file(struct conf_file *file)
{
    conf_free(file->conf);
    conf_faults_free(&file->faults);
}

void assert_loads(struct conf_file *file, const char *text)
{
    load_file(file, text);
    cr_assert_not_null(file->conf, "%s: %s", text, file->faults.lines[0]);
}

const char *fault_at(const struct conf_file *file, size_t index)
{
    cr_assert_lt(index, file->faults.count, "there are %zu faults", file->faults.count);
    const char *line = file->faults.lines[index];
    size_t length = strlen(file->directory);
    cr_assert(strncmp(line, file->directory, length) == 0, "%s", line);
    return line + length + 1;
}

void assert_faults(const char *bytes, size_t length, size_t count, const char *const *expected)
{
    struct conf_file file;
    load_bytes(&file, bytes, length);
    for (size_t i = 0; i < count; i++) {
        cr_assert_str_eq(fault_at(&file, i), expected[i]);
    }
    cr_assert_eq(file.faults.count, count, "one more: %s", file.faults.lines[count]);
    drop_file(&file);
}

void assert_fault(const char *text, const char *expected)
{
    assert_faults(text, strlen(text), 1, &expected);
}

void assert_refused(const char *option, const char *value, const char *what)
{
    struct conf_file file;
    char *text = conf_format("[headgate]\n%s = %s\n", option, value);
    load_file(&file, text);
    cr_assert_eq(file.faults.count, 1, "%s: %zu faults", text, file.faults.count);
    const char *start = "h.ini:2: [headgate] ";
    cr_assert(strncmp(fault_at(&file, 0), start, strlen(start)) == 0, "%s", fault_at(&file, 0));
    cr_assert_not_null(strstr(fault_at(&file, 0), what), "%s", fault_at(&file, 0));
    drop_file(&file);
    free(text);
}

int64_t load_number(const char *option, const char *value)
{
    struct conf_file file;
    char *text = conf_format("[headgate]\n%s=%s\n", option, value);
    assert_loads(&file, text);
    int64_t number = -1;
    for (size_t i = 0; i < conf_option_count; i++) {
        if (strcmp(conf_options[i].name, option) == 0) {
            memcpy(&number, (char *)file.conf + conf_options[i].offset, sizeof number);
        }
    }
    drop_file(&file);
    free(text);
    return number;
}

struct conf *default_conf(void)
{
    struct conf_faults faults;
    struct conf *conf = conf_load(NULL, NULL, &faults);
    cr_assert_not_null(conf);
    cr_assert_eq(faults.count, 0);
    conf_faults_free(&faults);
    return conf;
}
