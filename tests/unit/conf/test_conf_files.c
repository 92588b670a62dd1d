/* Files that options name or that others include: how their paths are read, what they may hold, who may read them, and
 * whether they have changed since. */
#include "conf_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_bytes(const struct conf_file *place, const char *name, const char *bytes, size_t length)
{
    char *path = conf_format("%s/%s", place->directory, name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, length, file), length);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(chmod(path, 0600), 0);
    free(path);
}

static void put(const struct conf_file *place, const char *name, const char *text)
{
    put_bytes(place, name, text, strlen(text));
}

static void begin(struct conf_file *place, const char *text)
{
    *place = (struct conf_file){.directory = "/tmp/headgate-test-XXXXXX"};
    cr_assert_not_null(mkdtemp(place->directory));
    snprintf(place->path, sizeof place->path, "%s/h.ini", place->directory);
    char *inner = conf_format("%s/conf.d", place->directory);
    cr_assert_eq(mkdir(inner, 0700), 0);
    free(inner);
    put(place, "h.ini", text);
}

static void load(struct conf_file *place)
{
    conf_free(place->conf);
    conf_faults_free(&place->faults);
    place->conf = conf_load(place->path, NULL, &place->faults);
}

static void end(struct conf_file *place)
{
    char *command = conf_format("rm -r %s", place->directory);
    conf_free(place->conf);
    conf_faults_free(&place->faults);
    cr_assert_eq(system(command), 0);
    free(command);
}

static void assert_sound(struct conf_file *place)
{
    load(place);
    cr_assert_not_null(place->conf, "%s", place->faults.count > 0 ? place->faults.lines[0] : "");
}

/* ---- passwords in files ---- */

static const char password_file[] = "[headgate]\nadmin_password_file = pw\n";

/* It is never printed, and a reload takes it over. */
Test(conf_files, password_is_what_the_file_holds)
{
    static const char *const files[] = {"s3cret; #\"", "s3cret; #\"\n", "s3cret; #\"\r\n"};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct conf_file place;
        begin(&place, password_file);
        put(&place, "pw", files[i]);
        assert_sound(&place);
        cr_assert_str_eq(place.conf->admin_password, "s3cret; #\"");
        for (int shown = 0; shown < 2; shown++) {
            char *text = print_conf(place.conf, shown == 1);
            cr_assert_null(strstr(text, "s3cret"));
            cr_assert_not_null(strstr(text, "\nadmin_password =\n"));
            cr_assert_not_null(strstr(text, "/pw\n"), "the path is no secret");
            free(text);
        }
        struct conf *defaults = default_conf();
        struct conf *merged = merge_conf(defaults, place.conf, NULL);
        cr_assert_str_eq(merged->admin_password, "s3cret; #\"");
        conf_free(merged);
        conf_free(defaults);
        end(&place);
    }
}

Test(conf_files, faults, .timeout = 60)
{
    static char most[1026];
    memset(most, 'a', sizeof most);
    const struct {
        const char *name, *bytes;
        size_t length;
        const char *problem;
    } files[] = {
        {"none", NULL, 0, "cannot be read: No such file or directory"},
        {"empty", "", 0, "is empty"},
        {"newline", "\n", 1, "is empty"},
        {"two", "a\nb\n", 4, "holds more than one line"},
        {"two-ends", "a\n\n", 3, "holds more than one line"},
        {"nul", "a\0b", 3, "holds a NUL byte"},
        {"long", most, 1026, "is too large"},
        {".", NULL, 0, "is a directory"},
        {"/dev/zero", NULL, 0, "is not a regular file"},
        {"pipe", NULL, 0, "is not a regular file"}, /* which nobody is waited for */
        {"pw\nadmin_password = secret", NULL, 0, "/pw: stands beside admin_password; expected one of the two"},
    };
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct conf_file place;
        char *text = conf_format("[headgate]\nadmin_password_file = %s\n", files[i].name);
        begin(&place, text);
        put(&place, "pw", "secret\n");
        char *pipe = conf_format("%s/pipe", place.directory);
        cr_assert_eq(mkfifo(pipe, 0600), 0);
        if (files[i].bytes != NULL) {
            put_bytes(&place, files[i].name, files[i].bytes, files[i].length);
        }
        load(&place);
        cr_assert_eq(place.faults.count, 1);
        cr_assert_not_null(strstr(fault_at(&place, 0), files[i].problem), "%s", fault_at(&place, 0));
        cr_assert_not_null(strstr(fault_at(&place, 0), "h.ini:2: [headgate] admin_password_file = "));
        cr_assert_null(strstr(fault_at(&place, 0), "secret"));
        cr_assert_null(strstr(fault_at(&place, 0), "aaaa"));
        free(pipe);
        free(text);
        end(&place);
    }
}

/* ---- include ---- */

Test(conf_files, in_any_place)
{
    struct conf_file place;
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

Test(conf_files, faults_name_their_file)
{
    struct conf_file place;
    begin(&place, "[headgate]\nmax_clients = 5\ninclude = b.ini\nlanes = none\n");
    put(&place, "b.ini", "# a comment\n[headgate]\nmax_clients = 6\nthreads = 0\ninclude = c.ini\n");
    put(&place, "c.ini", "[headgate]\nthreads = 2\n");
    load(&place);
    cr_assert_eq(place.faults.count, 4);
    char *expected =
        conf_format("b.ini:3: [headgate] max_clients = 6: given in %s:2 already; expected it once", place.path);
    cr_assert_str_eq(fault_at(&place, 0), expected);
    free(expected);
    cr_assert_eq(strncmp(fault_at(&place, 1), "b.ini:4: [headgate] threads = 0: is too small", 45), 0);
    cr_assert_eq(strncmp(fault_at(&place, 2), "c.ini:2: [headgate] threads = 2: given in ", 42), 0);
    cr_assert_not_null(strstr(fault_at(&place, 2), "/b.ini:4 already"));
    cr_assert_eq(strncmp(fault_at(&place, 3), "h.ini:4: [headgate] lanes = none: is not a whole number", 55), 0);
    end(&place);
}

Test(conf_files, what_is_not_there)
{
    struct conf_file place;
    begin(&place, "include = conf.d/*.conf\n");
    assert_sound(&place);
    put(&place, "h.ini", "include = conf.d/a.conf\n");
    load(&place);
    cr_assert_not_null(strstr(fault_at(&place, 0), "h.ini:1: include = "));
    cr_assert_not_null(
        strstr(fault_at(&place, 0), "/conf.d/a.conf: cannot be read: No such file or directory; expected"));
    put(&place, "h.ini", "include = conf.d\n");
    load(&place);
    cr_assert_not_null(strstr(fault_at(&place, 0), "/conf.d: is a directory; expected"));
    put(&place, "h.ini", "include =\n");
    load(&place);
    cr_assert_not_null(strstr(fault_at(&place, 0), "is empty"));
    end(&place);
}

Test(conf_files, ends)
{
    struct conf_file place;
    begin(&place, "include = b.ini\n");
    put(&place, "b.ini", "include = h.ini\n");
    load(&place);
    cr_assert_not_null(strstr(fault_at(&place, 0), "b.ini:1: include = "));
    cr_assert_not_null(strstr(fault_at(&place, 0), "includes itself"));
    for (int i = 0; i < 12; i++) {
        char *name = conf_format("%d.ini", i), *text = conf_format("include = %d.ini\n", i + 1);
        put(&place, name, text);
        free(name);
        free(text);
    }
    put(&place, "h.ini", "include = 0.ini\n");
    load(&place);
    cr_assert_eq(place.faults.count, 1);
    cr_assert_not_null(strstr(fault_at(&place, 0), "is the 9th file within another"));
    end(&place);
}

/* ---- changes ---- */

static bool has_changed(const struct conf_file *place)
{
    return conf_files_changed(&place->faults.files);
}

Test(conf_files, a_new_file_of_a_pattern_is_a_change)
{
    struct conf_file place;
    begin(&place, "include = conf.d/*.conf\n");
    assert_sound(&place);
    cr_assert_not(has_changed(&place));
    put(&place, "conf.d/other", "");
    cr_assert_not(has_changed(&place));
    put(&place, "conf.d/a.conf", "[headgate]\nlanes = 2\n");
    cr_assert(has_changed(&place));
    assert_sound(&place);
    cr_assert_eq(place.conf->lanes, 2);
    cr_assert_not(has_changed(&place));
    put(&place, "conf.d/a.conf", "[headgate]\nlanes = 13\n");
    cr_assert(has_changed(&place));
    end(&place);
}

/* ---- who may read it ---- */

static size_t warnings_with_mode(struct conf_file *place, const char *name, mode_t mode)
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

Test(conf_files, others_may_read_a_secret)
{
    struct conf_file place;
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
