#include "conf_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct conf *load(const char *text, const struct conf_section *const *sections, struct conf_faults *faults)
{
    char directory[] = "/tmp/headgate-test-XXXXXX", path[64];

    cr_assert_not_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/h.ini", directory);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
    struct conf *conf = conf_load(path, sections, faults);
    unlink(path);
    rmdir(directory);
    return conf;
}

struct conf *load_conf(const char *text, const struct conf_section *const *sections)
{
    struct conf_faults faults;
    struct conf *conf = load(text, sections, &faults);

    cr_assert_not_null(conf, "%s: %s", text, faults.count > 0 ? faults.lines[0] : "");
    conf_faults_free(&faults);
    return conf;
}

void assert_conf_fault(const char *text, const struct conf_section *const *sections, const char *expected)
{
    struct conf_faults faults;

    cr_assert_null(load(text, sections, &faults), "%s", text);
    cr_assert_eq(faults.count, 1, "%zu faults in %s", faults.count, text);
    cr_assert_not_null(strstr(faults.lines[0], expected), "%s: %s", text, faults.lines[0]);
    conf_faults_free(&faults);
}

struct conf *merge_conf(const struct conf *old, const struct conf *fresh, const struct conf_section *const *sections)
{
    struct conf_faults faults = {0};
    struct conf *merged = conf_merge_reloadable(old, fresh, sections, &faults);

    cr_assert_not_null(merged, "%s", faults.count > 0 ? faults.lines[0] : "no fault is told");
    return merged;
}

char *print_conf(const struct conf *conf, bool show_secrets)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    conf_print(conf, out, show_secrets);
    fclose(out);
    return text;
}

void note_option(void *context, const char *option)
{
    char **text = context;
    char *longer = conf_format("%s%s;", *text, option);

    free(*text);
    *text = longer;
}
