/*
 * The ini files that a configuration is read from: the one that was named, and those that it includes, one within the
 * other. Lines are counted through all of them, so that the number of a line says which file it is of, too.
 */
#include "conf/conf_private.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 8
#define SOURCES_MAX 256

/* A file that is being read; the next one is read when it has come to its end. */
struct conf_source {
    struct conf_source *outer;
    char *path;
    char *text;
    size_t length;
    const char *next; /* not read yet: up to the end of the text */
    struct stat status;
    int depth;
    bool holds_secret;
    int line;               /* as it is counted within the file */
    struct conf_part *part; /* as in the reading, while another file is read */
    bool in_unknown;
};

/* The lines from first on, up to those of the next one, are those of that file from line on. */
struct conf_stretch {
    struct conf_stretch *before;
    int first;
    int line;
    char *path;
};

/* ---- where a line is ---- */

static void begin_stretch(struct conf_reading *reading)
{
    struct conf_stretch *stretch = conf_alloc(NULL, sizeof *stretch);

    *stretch = (struct conf_stretch){
        .before = reading->stretches,
        .first = reading->line + 1,
        .line = reading->source->line + 1,
        .path = conf_copy(reading->source->path, strlen(reading->source->path)),
    };
    reading->stretches = stretch;
}

const char *conf_place(const struct conf_reading *reading, int line, int *line_of_file)
{
    const struct conf_stretch *stretch = reading->stretches;

    while (stretch != NULL && stretch->first > line) {
        stretch = stretch->before;
    }
    *line_of_file = stretch != NULL ? line - stretch->first + stretch->line : line;
    return stretch != NULL ? stretch->path : reading->path;
}

bool conf_same_file(const struct conf_reading *reading, int a, int b)
{
    int line;

    return strcmp(conf_place(reading, a, &line), conf_place(reading, b, &line)) == 0;
}

char *conf_place_text(const struct conf_reading *reading, int line)
{
    int line_of_file;
    const char *path = conf_place(reading, line, &line_of_file);

    return conf_same_file(reading, line, reading->line) ? conf_format("on line %d", line_of_file)
                                                        : conf_format("in %s:%d", path, line_of_file);
}

/* ---- the files ---- */

static void keep_part(struct conf_reading *reading)
{
    if (reading->source != NULL) {
        reading->source->part = reading->part;
        reading->source->in_unknown = reading->in_unknown;
    }
}

/* Goes on with the source that is the reading's now. */
static void go_on(struct conf_reading *reading)
{
    reading->path = reading->source->path;
    reading->part = reading->source->part;
    reading->in_unknown = reading->source->in_unknown;
    begin_stretch(reading);
}

void conf_source_push(struct conf_reading *reading, const char *path, char *text, size_t length,
                      const struct stat *status)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    struct conf_source *source = conf_alloc(NULL, sizeof *source);
    size_t skipped = length >= 3 && memcmp(text, byte_order_mark, 3) == 0 ? 3 : 0;

    *source = (struct conf_source){
        .outer = reading->source,
        .path = conf_copy(path, strlen(path)),
        .text = text,
        .length = length,
        .next = text + skipped,
        .status = *status,
        .depth = reading->source != NULL ? reading->source->depth + 1 : 0,
    };
    keep_part(reading);
    reading->source = source;
    reading->source_count++;
    go_on(reading);
}

static void pop(struct conf_reading *reading)
{
    struct conf_source *source = reading->source;

    if (source->holds_secret) {
        conf_check_mode(reading, source->path, &source->status);
    }
    reading->source = source->outer;
    explicit_bzero(source->text, source->length);
    free(source->text);
    free(source->path);
    free(source);
    if (reading->source != NULL) {
        go_on(reading);
    } else {
        reading->path = reading->conf->path;
    }
}

char *conf_source_line(struct conf_reading *reading)
{
    while (reading->source != NULL && reading->source->next == reading->source->text + reading->source->length) {
        pop(reading);
    }
    struct conf_source *source = reading->source;
    if (source == NULL) {
        return NULL;
    }
    const char *end = source->text + source->length;
    const char *newline = memchr(source->next, '\n', (size_t)(end - source->next));
    const char *stop = newline != NULL ? newline : end;
    size_t length = (size_t)(stop - source->next);
    char *line = conf_copy(source->next, length);

    source->next = newline != NULL ? newline + 1 : end;
    source->line++;
    reading->line++;
    if (length > 0 && line[length - 1] == '\r') {
        line[length - 1] = '\0';
    }
    return line;
}

void conf_source_holds_secret(struct conf_reading *reading)
{
    reading->source->holds_secret = true;
}

void conf_sources_free(struct conf_reading *reading)
{
    while (reading->source != NULL) {
        pop(reading);
    }
    while (reading->stretches != NULL) {
        struct conf_stretch *stretch = reading->stretches;
        reading->stretches = stretch->before;
        free(stretch->path);
        free(stretch);
    }
}

/* ---- include ---- */

static void fault_include(struct conf_reading *reading, const char *path, const char *problem)
{
    conf_fault_line(reading, "include = %s: %s; expected an ini file, or a pattern of names as in conf.d/*.ini", path,
                    problem);
}

static bool is_being_read(const struct conf_reading *reading, const struct stat *status)
{
    const struct conf_source *source = reading->source;

    /* Beside the one that includes, only those that include it are being read; others are yet to be. */
    while (source != NULL && !((source == reading->source || source->depth < reading->source->depth) &&
                               source->status.st_dev == status->st_dev && source->status.st_ino == status->st_ino)) {
        source = source->outer;
    }
    return source != NULL;
}

/* A file that is to be read next. NULL after a fault. */
static char *read_included(struct conf_reading *reading, const char *path, size_t *length, struct stat *status)
{
    char problem[CONF_PROBLEM_MAX];
    char *text = conf_file_read(&reading->faults->files, path, CONF_FILE_MAX, length, status, problem);
    bool sound = text != NULL;

    conf_files_last(&reading->faults->files)->is_ini = true;
    sound = sound && (!is_being_read(reading, status) || conf_wrong(problem, "includes itself"));
    sound = sound && (memchr(text, '\0', *length) == NULL || conf_wrong(problem, "holds a NUL byte"));
    if (!sound) {
        fault_include(reading, path, problem);
        free(text);
        return NULL;
    }
    return text;
}

/* Whoever is to be read last is pushed first. */
static void include_all(struct conf_reading *reading, char *const *paths, size_t count)
{
    char problem[CONF_PROBLEM_MAX];
    int depth = reading->source->depth;
    struct included {
        char *text;
        size_t length;
        struct stat status;
    } *found = conf_alloc(NULL, count * sizeof *found);

    if (depth >= DEPTH_MAX || reading->source_count + count > SOURCES_MAX) {
        conf_wrong(problem, depth >= DEPTH_MAX ? "is the %dth file within another" : "would be more than %d files",
                   depth >= DEPTH_MAX ? depth + 1 : SOURCES_MAX);
        fault_include(reading, paths[0], problem);
        free(found);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        found[i].text = read_included(reading, paths[i], &found[i].length, &found[i].status);
    }
    for (size_t i = count; i > 0; i--) {
        if (found[i - 1].text != NULL) {
            conf_source_push(reading, paths[i - 1], found[i - 1].text, found[i - 1].length, &found[i - 1].status);
            reading->source->depth = depth + 1;
        }
    }
    free(found);
}

static void include_pattern(struct conf_reading *reading, const char *pattern)
{
    glob_t matches = {.gl_pathc = 0};
    int result = glob(pattern, 0, NULL, &matches);

    conf_files_note_pattern(&reading->faults->files, pattern);
    if (result == 0) {
        include_all(reading, matches.gl_pathv, matches.gl_pathc);
    } else if (result != GLOB_NOMATCH) {
        fault_include(reading, pattern, "cannot be looked for");
    }
    globfree(&matches);
}

void conf_include(struct conf_reading *reading, const char *value)
{
    static const struct conf_option option = {.name = "include", .type = CONF_FILE, .max = CONF_LINE_MAX};
    char problem[CONF_PROBLEM_MAX], *given = NULL;

    if (!conf_value_read(&option, &given, value, problem) || *given == '\0') {
        fault_include(reading, value, given == NULL ? problem : "is empty");
        free(given);
        return;
    }
    char *path = conf_file_path(reading->path, given);
    if (strpbrk(path, "*?[") != NULL) {
        include_pattern(reading, path);
    } else {
        include_all(reading, &path, 1);
    }
    free(path);
    free(given);
}
