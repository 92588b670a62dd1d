/* Files that options name: how their paths are read, what they may hold, and whether they have changed since. */
#include "conf_file.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A directory with an ini file and what stands beside it. */
struct place {
    char directory[64];
    char path[96];
    struct conf *conf;
    struct conf_faults faults;
};

static void put(const struct place *place, const char *name, const char *bytes, size_t length)
{
    char *path = conf_format("%s/%s", place->directory, name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, length, file), length);
    cr_assert_eq(fclose(file), 0);
    free(path);
}

static void put_text(const struct place *place, const char *name, const char *text)
{
    put(place, name, text, strlen(text));
}

static void begin(struct place *place)
{
    *place = (struct place){.directory = "/tmp/headgate-test-XXXXXX"};
    cr_assert_not_null(mkdtemp(place->directory));
    snprintf(place->path, sizeof place->path, "%s/h.ini", place->directory);
}

static void drop(struct place *place)
{
    conf_free(place->conf);
    place->conf = NULL;
    conf_faults_free(&place->faults);
}

static void load(struct place *place)
{
    drop(place);
    place->conf = conf_load(place->path, NULL, &place->faults);
}

static void end(struct place *place)
{
    char *command = conf_format("rm -r %s", place->directory);
    drop(place);
    cr_assert_eq(system(command), 0);
    free(command);
}

/* The only fault, without the directory. */
static const char *only_fault(const struct place *place)
{
    cr_assert_eq(place->faults.count, 1);
    return place->faults.lines[0] + strlen(place->directory) + 1;
}

Test(conf_files, password_is_what_the_file_holds)
{
    static const struct {
        const char *bytes;
        size_t length;
    } files[] = {{"s3cret; #\"", 10}, {"s3cret; #\"\n", 11}, {"s3cret; #\"\r\n", 12}};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct place place;
        begin(&place);
        put_text(&place, "h.ini", "[headgate]\nupstream_password_file = pw\n");
        put(&place, "pw", files[i].bytes, files[i].length);
        load(&place);
        cr_assert_not_null(place.conf);
        cr_assert_str_eq(place.conf->upstream_password, "s3cret; #\"");
        char *path = conf_format("%s/pw", place.directory);
        cr_assert_str_eq(place.conf->upstream_password_file, path);
        free(path);
        end(&place);
    }
}

Test(conf_files, password_of_a_file_is_never_printed)
{
    struct place place;
    begin(&place);
    put_text(&place, "h.ini", "[headgate]\nupstream_password_file = pw\nadmin_password_file = pw\n");
    put_text(&place, "pw", "hunter2\n");
    load(&place);
    for (int shown = 0; shown < 2; shown++) {
        char *text = print_conf(place.conf, shown == 1);
        cr_assert_null(strstr(text, "hunter2"));
        cr_assert_not_null(strstr(text, "\nupstream_password =\n"));
        cr_assert_not_null(strstr(text, "/pw\n"), "the path is no secret");
        free(text);
    }
    struct conf *defaults = default_conf();
    struct conf *merged = merge_conf(defaults, place.conf, NULL);
    cr_assert_str_eq(merged->upstream_password, "hunter2", "a reload takes it over");
    conf_free(merged);
    conf_free(defaults);
    end(&place);
}

Test(conf_files, faults)
{
    static const struct {
        const char *name;
        const char *bytes;
        size_t length;
        const char *problem;
    } files[] = {
        {"none", NULL, 0, "cannot be read: No such file or directory"},
        {"empty", "", 0, "is empty"},
        {"newline", "\n", 1, "is empty"},
        {"two", "a\nb\n", 4, "holds more than one line"},
        {"two-ends", "a\n\n", 3, "holds more than one line"},
        {"nul", "a\0b", 3, "holds a NUL byte"},
        {".", NULL, 0, "is a directory"},
        {"/dev/zero", NULL, 0, "is not a regular file"},
    };
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct place place;
        begin(&place);
        char *text = conf_format("[headgate]\nadmin_password_file = %s\n", files[i].name);
        put_text(&place, "h.ini", text);
        if (files[i].bytes != NULL) {
            put(&place, files[i].name, files[i].bytes, files[i].length);
        }
        load(&place);
        cr_assert_null(place.conf);
        cr_assert_not_null(strstr(only_fault(&place), files[i].problem), "%s", only_fault(&place));
        cr_assert_not_null(strstr(only_fault(&place), "h.ini:2: [headgate] admin_password_file = "));
        free(text);
        end(&place);
    }
}

Test(conf_files, length_is_bounded)
{
    char text[1200];
    struct place place;
    begin(&place);
    put_text(&place, "h.ini", "[headgate]\nadmin_password_file = pw\n");
    memset(text, 'a', sizeof text);
    put(&place, "pw", text, 1024);
    load(&place);
    cr_assert_not_null(place.conf);
    text[1024] = '\n';
    put(&place, "pw", text, 1025);
    load(&place);
    cr_assert_not_null(place.conf);
    for (size_t length = 1026; length < sizeof text; length += 100) {
        text[1024] = 'a';
        put(&place, "pw", text, length);
        load(&place);
        cr_assert_not_null(strstr(only_fault(&place), "is too large"));
        cr_assert_null(strstr(only_fault(&place), "aaaa"));
    }
    end(&place);
}

Test(conf_files, nobody_is_waited_for, .timeout = 60)
{
    struct place place;
    begin(&place);
    put_text(&place, "h.ini", "[headgate]\nadmin_password_file = pipe\n");
    char *path = conf_format("%s/pipe", place.directory);
    cr_assert_eq(mkfifo(path, 0600), 0);
    load(&place);
    cr_assert_not_null(strstr(only_fault(&place), "is not a regular file"));
    free(path);
    end(&place);
}

Test(conf_files, a_password_stands_in_one_place)
{
    struct place place;
    begin(&place);
    put_text(&place, "h.ini", "[headgate]\nadmin_password_file = pw\nadmin_password = secret\n");
    put_text(&place, "pw", "other\n");
    load(&place);
    cr_assert_not_null(strstr(only_fault(&place), "/pw: stands beside admin_password; expected one of the two"));
    cr_assert_null(strstr(only_fault(&place), "secret"));
    end(&place);
}

/* ---- changes ---- */

static bool has_changed(const struct place *place)
{
    return conf_files_changed(&place->faults.files);
}

Test(conf_files, changes_are_seen)
{
    struct place place;
    begin(&place);
    put_text(&place, "h.ini", "[headgate]\nadmin_password_file = pw\n");
    put_text(&place, "pw", "one\n");
    load(&place);
    cr_assert_eq(place.faults.files.count, 2);
    cr_assert_not(has_changed(&place));
    put_text(&place, "pw", "three\n");
    cr_assert(has_changed(&place));
    load(&place);
    cr_assert_not(has_changed(&place));
    char *path = conf_format("%s/pw", place.directory);
    cr_assert_eq(chmod(path, 0600), 0);
    cr_assert_eq(chmod(path, 0640), 0);
    cr_assert(has_changed(&place), "who may read it counts");
    load(&place);
    unlink(path);
    cr_assert(has_changed(&place));
    load(&place);
    cr_assert_null(place.conf);
    cr_assert_not(has_changed(&place), "that it is not there is known");
    put_text(&place, "pw", "one\n");
    cr_assert(has_changed(&place), "and that it is there again is news");
    free(path);
    end(&place);
}

Test(conf_files, a_link_that_is_turned_round_is_a_change)
{
    struct place place;
    begin(&place);
    char *link = conf_format("%s/pw", place.directory), *next = conf_format("%s/next", place.directory);
    put_text(&place, "h.ini", "[headgate]\nadmin_password_file = pw\n");
    put_text(&place, "one", "1111\n");
    put_text(&place, "two", "2222\n");
    cr_assert_eq(symlink("one", link), 0);
    load(&place);
    cr_assert_str_eq(place.conf->admin_password, "1111");
    cr_assert_eq(symlink("two", next), 0);
    cr_assert_eq(rename(next, link), 0);
    cr_assert(has_changed(&place));
    load(&place);
    cr_assert_str_eq(place.conf->admin_password, "2222");
    free(link);
    free(next);
    end(&place);
}
