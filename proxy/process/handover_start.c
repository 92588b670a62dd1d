/* Starting the program anew, with one descriptor beside the standard streams. */
#include "process/handover_private.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* What is added to the environment, at most. */
#define LINES_MAX 3

/* NULL when memory is short. */
static char **make_environment(char *const lines[LINES_MAX])
{
    size_t count = 0;

    while (environ[count] != NULL) {
        count++;
    }
    char **made = malloc((count + LINES_MAX + 1) * sizeof made[0]);
    if (made == NULL) {
        return NULL;
    }
    memcpy(made, environ, count * sizeof made[0]);
    for (size_t i = 0; i < LINES_MAX; i++) {
        if (*lines[i] != '\0') {
            made[count++] = lines[i];
        }
    }
    made[count] = NULL;
    return made;
}

/* An error's number. */
static int describe(posix_spawn_file_actions_t *actions, int fd)
{
    int error = posix_spawn_file_actions_adddup2(actions, fd, HANDOVER_FD);

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 34)
    /* All others are closed by exec() already; should one not be, its client would be held open by a process that does
     * not know of it. */
    error = error != 0 ? error : posix_spawn_file_actions_addclosefrom_np(actions, HANDOVER_FD + 1);
#endif
    return error;
}

static int start(const struct handover *handover, int fd, char **environment, pid_t *process)
{
    char *const with_file[] = {(char *)(uintptr_t)handover->program, (char *)(uintptr_t) "-c",
                               (char *)(uintptr_t)handover->conf_path, NULL};
    char *const without[] = {(char *)(uintptr_t)handover->program, NULL};
    posix_spawn_file_actions_t actions;

    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0) {
        return error;
    }
    error = describe(&actions, fd);
    if (error == 0) {
        error = posix_spawnp(process, handover->program, &actions, NULL,
                             handover->conf_path != NULL ? with_file : without, environment);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

pid_t handover_start_program(const struct handover *handover, int fd)
{
    char line[64], address[NOTIFY_LINE_MAX], watchdog[NOTIFY_LINE_MAX];
    char *const lines[LINES_MAX] = {line, address, watchdog};
    pid_t process = -1;

    (void)snprintf(line, sizeof line, "%s=%d", HANDOVER_VARIABLE, HANDOVER_FD);
    notify_write_environment(&handover->supervisor->notify, address, watchdog);
    char **environment = make_environment(lines);
    int error = environment != NULL ? start(handover, fd, environment, &process) : ENOMEM;
    free(environment);
    errno = error;
    return error == 0 ? process : -1;
}
