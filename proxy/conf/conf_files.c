/*
 * Files beside the ini file. Each is opened once, and all that is said of it is of what was opened: nobody can put
 * another in its place between a look and the reading.
 */
#include "conf/conf_files.h"
#include "conf/conf_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what was found ---- */

static struct conf_seen *add_seen(struct conf_files *files, const char *path)
{
    files->items = conf_alloc(files->items, (files->count + 1) * sizeof *files->items);
    struct conf_seen *seen = &files->items[files->count++];
    *seen = (struct conf_seen){.path = conf_copy(path, strlen(path))};
    return seen;
}

struct conf_seen *conf_files_last(const struct conf_files *files)
{
    return &files->items[files->count - 1];
}

static uint64_t mix(uint64_t state, uint64_t value)
{
    return (state ^ value) * UINT64_C(0x100000001b3) ^ state >> 29;
}

/* Of the names that match now. */
static uint64_t hash_matches(const char *pattern)
{
    glob_t matches = {.gl_pathc = 0};
    uint64_t hash = 1;

    if (glob(pattern, 0, NULL, &matches) == 0) {
        for (size_t i = 0; i < matches.gl_pathc; i++) {
            for (const char *at = matches.gl_pathv[i]; *at != '\0'; at++) {
                hash = mix(hash, (unsigned char)*at);
            }
            hash = mix(hash, UINT64_C(1) << 8);
        }
    }
    globfree(&matches);
    return hash;
}

void conf_files_note_pattern(struct conf_files *files, const char *pattern)
{
    struct conf_seen *seen = add_seen(files, pattern);

    seen->is_pattern = true;
    seen->matches = hash_matches(pattern);
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* The time of the last change of its state is that of its owner and mode, too. */
static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mode == b->st_mode &&
           same_time(&a->st_mtim, &b->st_mtim) && same_time(&a->st_ctim, &b->st_ctim);
}

static bool has_changed(const struct conf_seen *seen)
{
    struct stat status;

    if (seen->is_pattern) {
        return hash_matches(seen->path) != seen->matches;
    }
    bool is_there = stat(seen->path, &status) == 0;
    if (!is_there) {
        return seen->reason == 0;
    }
    if (seen->reason != 0) {
        /* It is there now, or always was, and may not be read: another user, or another mode, would be a change. */
        return seen->reason == ENOENT || seen->reason == ENOTDIR || !is_same(&seen->status, &status);
    }
    return !is_same(&seen->status, &status);
}

bool conf_files_changed(const struct conf_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        if (has_changed(&files->items[i])) {
            return true;
        }
    }
    return false;
}

static bool was_emptied(const struct conf_seen *seen)
{
    struct stat status;

    return seen->is_ini && seen->reason == 0 && S_ISREG(seen->status.st_mode) && seen->status.st_size > 0 &&
           stat(seen->path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0;
}

const char *conf_files_emptied(const struct conf_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        if (was_emptied(&files->items[i])) {
            return files->items[i].path;
        }
    }
    return NULL;
}

uint64_t conf_files_state(const struct conf_files *files)
{
    uint64_t state = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < files->count; i++) {
        struct stat status = {0};
        bool is_there = stat(files->items[i].path, &status) == 0;
        const uint64_t values[] = {
            is_there,
            (uint64_t)status.st_dev,
            (uint64_t)status.st_ino,
            (uint64_t)status.st_size,
            (uint64_t)status.st_mtim.tv_sec,
            (uint64_t)status.st_mtim.tv_nsec,
            (uint64_t)status.st_ctim.tv_sec,
            (uint64_t)status.st_ctim.tv_nsec,
        };
        state = files->items[i].is_pattern ? mix(state, hash_matches(files->items[i].path)) : state;
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            state = mix(state, values[j]);
        }
    }
    return state;
}

void conf_files_free(struct conf_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        free(files->items[i].path);
    }
    free(files->items);
    *files = (struct conf_files){0};
}

/* ---- reading ---- */

/* Opened without waiting for who writes into a pipe; a directory only if one may be meant. -1: problem says why. */
static int open_file(struct conf_files *files, const char *path, bool may_be_directory, struct stat *status,
                     char *problem)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int reason = fd < 0 ? errno : 0;
    struct conf_seen *seen = add_seen(files, path);

    seen->reason = reason;
    /* Of one that cannot be read, too, so that a change is seen. */
    (void)(fd < 0 ? stat(path, &seen->status) : fstat(fd, &seen->status));
    *status = seen->status;
    if (fd < 0) {
        conf_wrong(problem, "cannot be read: %s", strerror(reason));
        return -1;
    }
    if (!S_ISREG(status->st_mode) && !(may_be_directory && S_ISDIR(status->st_mode))) {
        conf_wrong(problem, S_ISDIR(status->st_mode) ? "is a directory" : "is not a regular file");
        close(fd);
        return -1;
    }
    return fd;
}

/* Reads up to size bytes, and says how many there were; -1 with errno set. */
static ssize_t read_whole(int fd, char *text, size_t size)
{
    size_t length = 0;

    while (length < size) {
        ssize_t got = read(fd, text + length, size - length);
        if (got == 0) {
            break;
        }
        if (got < 0 && errno != EINTR) {
            return -1;
        }
        length += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)length;
}

static bool stayed_as_it_was(int fd, const struct stat *before)
{
    struct stat after;

    return fstat(fd, &after) == 0 && after.st_size == before->st_size && same_time(&after.st_mtim, &before->st_mtim);
}

/* Whether OpenSSL looks for files of that name in a directory: a hash, and a number, of a list of certificates that are
 * revoked behind an r. */
static bool is_hashed(const char *name)
{
    size_t digits = strspn(name, "0123456789abcdef");
    const char *rest = name + digits;

    rest += strncmp(rest, ".r", 2) == 0 ? 2 : *rest == '.';
    return digits == 8 && rest > name + digits && *rest != '\0' && rest[strspn(rest, "0123456789")] == '\0';
}

/* Those within a directory: what overwrites one of them leaves the directory as it was. */
static void note_entries(struct conf_files *files, const char *path)
{
    DIR *directory = opendir(path);

    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char *file = conf_format("%s/%s", path, entry->d_name);
        struct conf_seen *seen = is_hashed(entry->d_name) ? add_seen(files, file) : NULL;
        if (seen != NULL) {
            seen->is_within = true;
            seen->reason = stat(file, &seen->status) != 0 ? errno : 0;
        }
        free(file);
    }
    if (directory != NULL) {
        closedir(directory);
    }
}

/* Who reads it says what is wrong with one that cannot be opened; but it must not be waited for. */
static bool check_file(struct conf_files *files, const char *path, struct stat *status, char problem[CONF_PROBLEM_MAX])
{
    int fd = open_file(files, path, true, status, problem);

    if (fd < 0) {
        return files->items[files->count - 1].reason != 0;
    }
    close(fd);
    if (S_ISDIR(status->st_mode)) {
        note_entries(files, path);
    }
    return true;
}

char *conf_file_read(struct conf_files *files, const char *path, size_t max, size_t *length, struct stat *status,
                     char problem[CONF_PROBLEM_MAX])
{
    int fd = open_file(files, path, false, status, problem);

    if (fd < 0) {
        return NULL;
    }
    char *text = conf_alloc(NULL, max + 2);
    ssize_t got = read_whole(fd, text, max + 1);
    bool sound = got >= 0 || conf_wrong(problem, "cannot be read: %s", strerror(errno));
    sound = sound && ((size_t)got <= max || conf_wrong(problem, "is too large"));
    sound = sound && (stayed_as_it_was(fd, status) || conf_wrong(problem, "was written while it was read"));
    close(fd);
    if (!sound) {
        explicit_bzero(text, max + 2);
        free(text);
        return NULL;
    }
    text[got] = '\0';
    *length = (size_t)got;
    return text;
}

/* ---- what options say of files ---- */

char *conf_file_path(const char *beside, const char *path)
{
    const char *slash = strrchr(beside, '/');

    if (*path == '/' || *path == '\0' || slash == NULL) {
        return conf_copy(path, strlen(path));
    }
    return conf_format("%.*s/%s", (int)(slash - beside), beside, path);
}

/* Takes the newline away that editors and echo leave, and refuses what can be no password. */
static bool check_secret(char *text, size_t length, char problem[CONF_PROBLEM_MAX])
{
    if (memchr(text, '\0', length) != NULL) {
        return conf_wrong(problem, "holds a NUL byte");
    }
    if (length > 0 && text[length - 1] == '\n') {
        text[--length] = '\0';
        if (length > 0 && text[length - 1] == '\r') {
            text[--length] = '\0';
        }
    }
    if (length == 0) {
        return conf_wrong(problem, "is empty");
    }
    return strpbrk(text, "\r\n") == NULL || conf_wrong(problem, "holds more than one line");
}

/* Sets the option that the file of the other one is for. */
static bool fill(struct conf_reading *reading, struct conf_part *part, const struct conf_option *option,
                 const char *path, struct stat *status, char problem[CONF_PROBLEM_MAX])
{
    const struct conf_option *filled = conf_section_option(part->section, option->fills);
    size_t length;
    /* A newline, as it is in DOS files. */
    char *text = conf_file_read(&reading->faults->files, path, (size_t)filled->max + 2, &length, status, problem);

    if (text == NULL) {
        return false;
    }
    bool sound = check_secret(text, length, problem);
    sound = sound && (strlen(text) <= (size_t)filled->max || conf_wrong(problem, "is too large"));
    if (sound) {
        conf_value_free(filled, part->values);
        char *copy = conf_copy(text, strlen(text));
        memcpy((char *)part->values + filled->offset, &copy, sizeof copy);
    }
    explicit_bzero(text, length);
    free(text);
    return sound;
}

static void look_at_file(struct conf_reading *reading, struct conf_part *part, size_t index)
{
    const struct conf_option *option = &part->section->options[index];
    struct conf_sighting *sighting = &part->sightings[index];
    char problem[CONF_PROBLEM_MAX], *path;
    struct stat status = {0};

    memcpy(&path, (char *)part->values + option->offset, sizeof path);
    if (*path == '\0' || sighting->faulty) {
        return;
    }
    const struct conf_option *filled = option->fills != NULL ? conf_section_option(part->section, option->fills) : NULL;
    if (filled != NULL && part->sightings[filled - part->section->options].line > 0) {
        char *what = conf_format("stands beside %s", filled->name);
        conf_fault_option(reading, part, sighting->line, option->name, path, what, "one of the two");
        free(what);
        sighting->faulty = true;
    } else if (!(filled != NULL ? fill(reading, part, option, path, &status, problem)
                                : check_file(&reading->faults->files, path, &status, problem))) {
        char *expected = filled != NULL ? conf_format("a file that holds nothing but up to %lld bytes on one line",
                                                      (long long)filled->max)
                                        : conf_format("a file that Headgate may read");
        conf_fault_option(reading, part, sighting->line, option->name, path, problem, expected);
        free(expected);
        sighting->faulty = true;
    } else if (option->secret) {
        conf_check_mode(reading, path, &status);
    }
}

void conf_look_at_files(struct conf_reading *reading)
{
    for (struct conf_part *part = reading->parts; part != NULL; part = part->next) {
        for (size_t i = 0; i < part->section->option_count; i++) {
            if (part->section->options[i].type == CONF_FILE) {
                look_at_file(reading, part, i);
            }
        }
    }
}
