/*
 * The files that a configuration is made of, and how each was found: ini files, files with secrets, certificates. Who
 * watches them learns from here whether anything has become otherwise since.
 */
#ifndef HEADGATE_CONF_FILES_H
#define HEADGATE_CONF_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

/* How a file was found when it was read. */
struct conf_seen {
    char *path;
    bool is_ini;      /* empty, it says nothing at all, which is no fault */
    bool is_pattern;  /* of names, as in conf.d: what counts is which files there are */
    bool is_within;   /* a directory that is one of the files; it need not be readable */
    int reason;       /* errno of a file that could not be opened, else 0; all that follows is 0 then */
    uint64_t matches; /* of a pattern: what stands for the names */
    struct stat status;
};

struct conf_files {
    struct conf_seen *items;
    size_t count;
};

/* Whether any of the files is not as it was found, by what the file system says of it; nothing is read. */
bool conf_files_changed(const struct conf_files *files);
/* An ini file that had something in it and has nothing now: it is about to be written anew, or could not be. NULL:
 * there is none. */
const char *conf_files_emptied(const struct conf_files *files);
/* What stands for how the files are now: another value if any has changed since. */
uint64_t conf_files_state(const struct conf_files *files);
void conf_files_free(struct conf_files *files);

#endif
