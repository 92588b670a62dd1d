/*
 * Servers of a test: each a program with a configuration and a log in the directory of the run, on a port that it has
 * for the whole run, ended by its process id.
 */
#ifndef RIG_SERVERS_H
#define RIG_SERVERS_H

#include "rig_process.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#define DIRECTORY_MAX 256
#define FILE_PATH_MAX 320

/* What the path points to has room for DIRECTORY_MAX bytes; it is "" without one. Tells on standard error, as the test
 * of that name, why it returns false. */
bool directory_make(char *directory, const char *test);
void directory_file(const char *directory, const char *name, char path[FILE_PATH_MAX]);
/* With all files in it, or tells where they are kept. */
void directory_leave(char *directory, const char *test, bool keep);

struct server {
    const char *test; /* in whose name it is told what is wrong */
    char name[32];    /* its configuration is NAME.conf, its log NAME.log */
    struct port port;
    pid_t pid; /* 0: not running */
};

/* Nothing is started yet; false with errno if there is no port. */
bool server_prepare(struct server *server, const char *test, const char *name);
/* Writes its configuration. */
typedef void server_configure(FILE *file, const void *context);
/* Starts "program option configuration" (option NULL: none), and waits until it answers. Tells why it returns false. */
bool server_start(struct server *server, const char *directory, const char *program, const char *option,
                  server_configure *configure, const void *context);
/* True as long as it is not running, or has not ended by itself, which is told. */
bool server_has_not_ended(struct server *server);
/* Ends it as a crash would. */
void server_kill(struct server *server);
/* Ends it by SIGTERM. True if it then exits with 0 and no sanitizer wrote to its log; else why is told. */
bool server_end(struct server *server, const char *directory);
/* Ends it if it runs, and gives its port back. */
void server_free(struct server *server);

#endif
