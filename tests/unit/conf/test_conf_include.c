/* Files that include others, and variables of the environment in values. */
#include "conf_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
    char directory[64];
    char path[96];
    struct conf *conf;
    struct conf_faults faults;
};

static void put(const struct place *place, const char *name, const char *text)
{
    char *path = conf_format("%s/%s", place->directory, name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(chmod(path, 0600), 0);
    free(path);
}

static void begin(struct place *place, const char *text)
{
    *place = (struct place){.directory = "/tmp/headgate-test-XXXXXX"};
    cr_assert_not_null(mkdtemp(place->directory));
    snprintf(place->path, sizeof place->path, "%s/h.ini", place->directory);
    char *inner = conf_format("%s/conf.d", place->directory);
    cr_assert_eq(mkdir(inner, 0700), 0);
    free(inner);
    put(place, "h.ini", text);
}

static void load(struct place *place)
{
    conf_free(place->conf);
    conf_faults_free(&place->faults);
    place->conf = conf_load(place->path, NULL, &place->faults);
}

static void end(struct place *place)
{
    char *command = conf_format("rm -r %s", place->directory);
    conf_free(place->conf);
    conf_faults_free(&place->faults);
    cr_assert_eq(system(command), 0);
    free(command);
}

static void assert_sound(struct place *place)
{
    load(place);
    cr_assert_not_null(place->conf, "%s", place->faults.count > 0 ? place->faults.lines[0] : "");
}

/* The fault without the directory. */
static const char *fault(const struct place *place, size_t index)
{
    cr_assert_lt(index, place->faults.count);
    return place->faults.lines[index] + strlen(place->directory) + 1;
}

static void assert_fault_begins(struct place *place, const char *expected)
{
    load(place);
    cr_assert_eq(place->faults.count, 1);
    cr_assert_eq(strncmp(fault(place, 0), expected, strlen(expected)), 0, "%s", fault(place, 0));
}

/* ---- include ---- */

Test(conf_include, in_any_place)
{
    struct place place;
    begin(&place, "include = conf.d/*.conf\n[headgate]\nmax_clients = 5\ninclude = b.ini\nbacklog = 7\n");
    put(&place, "conf.d/20.conf", "[headgate]\nlanes = 2\n");
    put(&place, "conf.d/10.conf", "[headgate]\nthreads = 3\n");
    put(&place, "conf.d/not-this", "[headgate]\nthreads = many\n");
    put(&place, "b.ini", "\xef\xbb\xbf[headgate]\r\npool = session\r\n");
    assert_sound(&place);
    cr_assert_eq(place.conf->max_clients, 5);
    cr_assert_eq(place.conf->threads, 3);
    cr_assert_eq(place.conf->lanes, 2);
    cr_assert_eq(place.conf->pool, CONF_POOL_SESSION);
    cr_assert_eq(place.conf->backlog, 7, "the section goes on behind it");
    char *path = conf_format("%s/h.ini", place.directory);
    cr_assert_str_eq(place.conf->path, path);
    free(path);
    end(&place);
}

Test(conf_include, faults_name_their_file)
{
    struct place place;
    begin(&place, "[headgate]\nmax_clients = 5\ninclude = b.ini\nlanes = none\n");
    put(&place, "b.ini", "# a comment\n[headgate]\nmax_clients = 6\nthreads = 0\ninclude = c.ini\n");
    put(&place, "c.ini", "[headgate]\nthreads = 2\n");
    load(&place);
    cr_assert_eq(place.faults.count, 4);
    char *expected =
        conf_format("b.ini:3: [headgate] max_clients = 6: given in %s:2 already; expected it once", place.path);
    cr_assert_str_eq(fault(&place, 0), expected);
    free(expected);
    cr_assert_eq(strncmp(fault(&place, 1), "b.ini:4: [headgate] threads = 0: is too small", 45), 0);
    cr_assert_eq(strncmp(fault(&place, 2), "c.ini:2: [headgate] threads = 2: given in ", 42), 0);
    cr_assert_not_null(strstr(fault(&place, 2), "/b.ini:4 already"));
    cr_assert_eq(strncmp(fault(&place, 3), "h.ini:4: [headgate] lanes = none: is not a whole number", 55), 0);
    end(&place);
}

Test(conf_include, needs_its_own_headings)
{
    struct place place;
    begin(&place, "[headgate]\ninclude = b.ini\n");
    put(&place, "b.ini", "lanes = 2\n");
    assert_fault_begins(&place, "b.ini:1: option stands before any section; expected [headgate] above it");
    end(&place);
}

Test(conf_include, what_is_not_there)
{
    struct place place;
    begin(&place, "include = conf.d/*.conf\n");
    assert_sound(&place);
    put(&place, "h.ini", "include = conf.d/a.conf\n");
    load(&place);
    cr_assert_not_null(strstr(fault(&place, 0), "h.ini:1: include = "));
    cr_assert_not_null(strstr(fault(&place, 0), "/conf.d/a.conf: cannot be read: No such file or directory; expected"));
    put(&place, "h.ini", "include = conf.d\n");
    load(&place);
    cr_assert_not_null(strstr(fault(&place, 0), "/conf.d: is a directory; expected"));
    put(&place, "h.ini", "include =\n");
    load(&place);
    cr_assert_not_null(strstr(fault(&place, 0), "is empty"));
    end(&place);
}

Test(conf_include, ends)
{
    struct place place;
    begin(&place, "include = b.ini\n");
    put(&place, "b.ini", "include = h.ini\n");
    load(&place);
    cr_assert_not_null(strstr(fault(&place, 0), "b.ini:1: include = "));
    cr_assert_not_null(strstr(fault(&place, 0), "includes itself"));
    for (int i = 0; i < 12; i++) {
        char *name = conf_format("%d.ini", i), *text = conf_format("include = %d.ini\n", i + 1);
        put(&place, name, text);
        free(name);
        free(text);
    }
    put(&place, "h.ini", "include = 0.ini\n");
    load(&place);
    cr_assert_eq(place.faults.count, 1);
    cr_assert_not_null(strstr(fault(&place, 0), "is the 9th file within another"));
    end(&place);
}

Test(conf_include, paths_start_at_the_file_that_has_them)
{
    struct place place;
    begin(&place, "include = conf.d/a.conf\n");
    put(&place, "conf.d/a.conf", "[headgate]\nadmin_password_file = secret\n");
    put(&place, "conf.d/secret", "hush\n");
    assert_sound(&place);
    cr_assert_str_eq(place.conf->admin_password, "hush");
    end(&place);
}

Test(conf_include, a_new_file_of_a_pattern_is_a_change)
{
    struct place place;
    begin(&place, "include = conf.d/*.conf\n");
    assert_sound(&place);
    cr_assert_not(conf_files_changed(&place.faults.files));
    put(&place, "conf.d/other", "");
    cr_assert_not(conf_files_changed(&place.faults.files));
    put(&place, "conf.d/a.conf", "[headgate]\nlanes = 2\n");
    cr_assert(conf_files_changed(&place.faults.files));
    assert_sound(&place);
    cr_assert_eq(place.conf->lanes, 2);
    cr_assert_not(conf_files_changed(&place.faults.files));
    put(&place, "conf.d/a.conf", "[headgate]\nlanes = 13\n");
    cr_assert(conf_files_changed(&place.faults.files));
    end(&place);
}

/* ---- variables ---- */

Test(conf_variables, stand_for_what_they_hold)
{
    static const char *const values[][2] = {
        {"${HG_PLAIN}", "plain"},
        {"a${HG_PLAIN}b${HG_PLAIN}", "aplainbplain"},
        {"\"${HG_ODD}\"", "a \"b\\ ;#${HG_PLAIN}"},
        {"${HG_ODD}", "a \"b\\ ;#${HG_PLAIN}"},
        {"${HG_NONE:-else}", "else"},
        {"${HG_EMPTY:-else}", "else"},
        {"${HG_NONE:-}x", "x"},
        {"${HG_PLAIN:-else}", "plain"},
        {"pa$$word$", "pa$$word$"},
        {"$HG_PLAIN", "$HG_PLAIN"},
        {"$${HG_PLAIN}", "${HG_PLAIN}"},
        {"$$${HG_PLAIN}", "$${HG_PLAIN}"},
        {"{HG_PLAIN}", "{HG_PLAIN}"},
    };
    setenv("HG_PLAIN", "plain", 1);
    setenv("HG_ODD", "a \"b\\ ;#${HG_PLAIN}", 1);
    setenv("HG_EMPTY", "", 1);
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        struct conf_file file, again;
        char *text = conf_format("[headgate]\nupstream_password = %s\n", values[i][0]);
        assert_loads(&file, text);
        cr_assert_str_eq(file.conf->upstream_password, values[i][1], "%s: %s", text, file.conf->upstream_password);
        char *printed = print_conf(file.conf, true);
        assert_loads(&again, printed);
        cr_assert_str_eq(again.conf->upstream_password, values[i][1], "%s", printed);
        struct conf *merged = merge_conf(again.conf, file.conf, NULL);
        cr_assert_str_eq(merged->upstream_password, values[i][1], "they are not read again");
        char *hidden = print_conf(file.conf, false);
        cr_assert_not_null(strstr(hidden, "upstream_password = ********\n"));
        conf_free(merged);
        free(hidden);
        free(printed);
        free(text);
        drop_file(&file);
        drop_file(&again);
    }
}

Test(conf_variables, in_values_of_all_kinds)
{
    struct conf_file file;
    setenv("HG_PORT", "7000", 1);
    setenv("HG_TIME", "5s", 1);
    assert_loads(&file, "[headgate]\nlisten = 127.0.0.1:${HG_PORT} # ${HG_NOT_SET}\n# ${HG_NOT_SET}\n"
                        "connect_timeout = ${HG_TIME}\npool = ${HG_POOL:-session}\n");
    cr_assert_eq(file.conf->listen.items[0].port, 7000);
    cr_assert_eq(file.conf->connect_timeout, 5000);
    cr_assert_eq(file.conf->pool, CONF_POOL_SESSION);
    drop_file(&file);
}

Test(conf_variables, faults)
{
    static const char *const values[][2] = {
        {"${HG_NOT_SET}", "names the variable HG_NOT_SET, which is not set"},
        {"a${", "has a ${ without the name of a variable"},
        {"${}", "has a ${ without the name of a variable"},
        {"${1A}", "has a ${ without the name of a variable"},
        {"${A B}", "has a ${ without the name of a variable"},
        {"${A-b}", "has a ${ without the name of a variable"},
        {"${:-b}", "has a ${ without the name of a variable"},
        {"${HG_LINES}", "has a control character in the variable HG_LINES"},
    };
    setenv("HG_LINES", "one\ntwo", 1);
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        assert_refused("log_file", values[i][0], values[i][1]);
        assert_refused("upstream", values[i][0], values[i][1]);
        assert_refused("upstream_password", values[i][0], values[i][1]);
    }
}

Test(conf_variables, section_names_are_as_they_are)
{
    setenv("HG_SECTION", "headgate", 1);
    assert_fault("[${HG_SECTION}]\n", "h.ini:1: [${HG_SECTION}]: unknown section; expected [headgate]");
}

/* ---- who may read it ---- */

static size_t warnings_with_mode(struct place *place, const char *name, mode_t mode)
{
    char *path = conf_format("%s/%s", place->directory, name);
    cr_assert_eq(chmod(path, mode), 0);
    free(path);
    assert_sound(place);
    size_t count = 0;
    for (size_t i = 0; i < place->faults.warning_count; i++) {
        count += strstr(place->faults.warnings[i], "holds a secret") != NULL;
    }
    return count;
}

Test(conf_modes, others_may_read_a_secret)
{
    struct place place;
    begin(&place, "[headgate]\nadmin_password_file = secret\n");
    put(&place, "secret", "hush\n");
    cr_assert_eq(warnings_with_mode(&place, "h.ini", 0644), 0, "it holds none");
    cr_assert_eq(warnings_with_mode(&place, "secret", 0644), 1);
    cr_assert_not_null(
        strstr(place.faults.warnings[0], "/secret: holds a secret, and every user of this machine may read it"));
    cr_assert_null(strstr(place.faults.warnings[0], "hush"));
    cr_assert_eq(warnings_with_mode(&place, "secret", 0602), 1);
    cr_assert_not_null(strstr(place.faults.warnings[0], "may write it (mode 0602)"));
    cr_assert_eq(warnings_with_mode(&place, "secret", 0640), 0, "the group is our own");
    cr_assert_eq(warnings_with_mode(&place, "secret", 0600), 0);
    cr_assert_eq(warnings_with_mode(&place, "secret", 0400), 0);
    put(&place, "h.ini", "[headgate]\nadmin_password = hush\n");
    cr_assert_eq(warnings_with_mode(&place, "h.ini", 0644), 1);
    cr_assert_eq(warnings_with_mode(&place, "h.ini", 0600), 0);
    setenv("HG_HUSH", "hush", 1);
    put(&place, "h.ini", "[headgate]\nadmin_password = ${HG_HUSH}\n");
    cr_assert_eq(warnings_with_mode(&place, "h.ini", 0644), 0, "it stands in the environment");
    end(&place);
}
