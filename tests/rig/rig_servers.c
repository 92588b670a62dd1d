#include "rig_servers.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_US (30 * (int64_t)1000000)

/* ---- the directory ---- */

bool directory_make(char *directory, const char *test)
{
    const char *base = getenv("TMPDIR");
    snprintf(directory, DIRECTORY_MAX, "%s/%s-XXXXXX", base != NULL ? base : P_tmpdir, test);
    if (mkdtemp(directory) != NULL)
        return true;
    fprintf(stderr, "%s: %s: %s\n", test, directory, strerror(errno));
    directory[0] = '\0';
    return false;
}

void directory_file(const char *directory, const char *name, char path[FILE_PATH_MAX])
{
    snprintf(path, FILE_PATH_MAX, "%s/%s", directory, name);
}

static void remove_files(const char *directory)
{
    DIR *entries = opendir(directory);
    const struct dirent *entry;
    if (entries == NULL)
        return;
    while ((entry = readdir(entries)) != NULL)
        (void)unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
}

void directory_leave(char *directory, const char *test, bool keep)
{
    if (directory[0] == '\0')
        return;
    if (keep) {
        fprintf(stderr, "%s: logs are kept in %s\n", test, directory);
        return;
    }
    remove_files(directory);
    rmdir(directory);
    directory[0] = '\0';
}

/* ---- a server ---- */

static void server_file(const struct server *server, const char *directory, const char *kind, char path[FILE_PATH_MAX])
{
    char name[sizeof server->name + 8];
    snprintf(name, sizeof name, "%s.%s", server->name, kind);
    directory_file(directory, name, path);
}

bool server_prepare(struct server *server, const char *test, const char *name)
{
    *server = (struct server){.test = test, .port.reservation = -1};
    snprintf(server->name, sizeof server->name, "%s", name);
    return port_take(&server->port);
}

static bool write_configuration(const char *path, server_configure *configure, const void *context)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    configure(file, context);
    return fclose(file) == 0;
}

bool server_start(struct server *server, const char *directory, const char *program, const char *option,
                  server_configure *configure, const void *context)
{
    char configuration[FILE_PATH_MAX];
    char log[FILE_PATH_MAX];
    server_file(server, directory, "conf", configuration);
    server_file(server, directory, "log", log);
    if (!write_configuration(configuration, configure, context)) {
        fprintf(stderr, "%s: %s: %s\n", server->test, configuration, strerror(errno));
        return false;
    }
    const char *const with_option[] = {program, option, configuration, NULL};
    const char *const without[] = {program, configuration, NULL};
    server->pid = process_start(option != NULL ? with_option : without, log);
    return server->pid > 0 && process_wait_for_pong(server->name, &server->pid, server->port.number);
}

bool server_has_not_ended(struct server *server)
{
    int status;
    if (server->pid <= 0 || waitpid(server->pid, &status, WNOHANG) != server->pid)
        return true;
    fprintf(stderr, "%s: %s ended by itself (status %#x)\n", server->test, server->name, (unsigned)status);
    server->pid = 0;
    return false;
}

void server_kill(struct server *server)
{
    process_kill(&server->pid);
}

bool server_end(struct server *server, const char *directory)
{
    char log[FILE_PATH_MAX];
    int status;
    kill(server->pid, SIGTERM);
    if (!process_wait(server->pid, END_US, &status)) {
        fprintf(stderr, "%s: %s does not end on SIGTERM\n", server->test, server->name);
        server_kill(server);
        return false;
    }
    server->pid = 0;
    if (status != 0)
        fprintf(stderr, "%s: %s ended on SIGTERM with status %#x\n", server->test, server->name, (unsigned)status);
    server_file(server, directory, "log", log);
    return process_log_is_clean(log) && status == 0;
}

void server_free(struct server *server)
{
    server_kill(server);
    port_release(&server->port);
}
