/* The file with the number of the process. */
#include "process/pid_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beside the file, until it is whole. */
static int open_beside(const char *path, char **name)
{
    if (asprintf(name, "%s.%ld", path, (long)getpid()) < 0) {
        *name = NULL;
        errno = ENOMEM;
        return -1;
    }
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(*name, flags, 0644);
    if (fd < 0 && errno == EEXIST && unlink(*name) == 0) {
        /* Of a process that had our number, and did not come to its end. */
        fd = open(*name, flags, 0644);
    }
    return fd;
}

static bool write_number(int fd, struct pid_file *pid_file)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    struct stat status;

    if (write(fd, text, (size_t)length) != length || fstat(fd, &status) != 0) {
        return false;
    }
    pid_file->device = status.st_dev;
    pid_file->inode = status.st_ino;
    return true;
}

bool pid_file_write(struct pid_file *pid_file, const char *path)
{
    char *name = NULL;

    *pid_file = (struct pid_file){0};
    if (*path == '\0') {
        return true;
    }
    int fd = open_beside(path, &name);
    bool is_written = fd >= 0 && write_number(fd, pid_file) && rename(name, path) == 0;
    int error = errno;
    if (fd >= 0 && !is_written) {
        unlink(name);
    }
    free(name);
    pid_file->path = is_written ? strdup(path) : NULL;
    if (pid_file->path != NULL) {
        pid_file->fd = fd;
    } else if (fd >= 0) {
        close(fd);
    }
    errno = error;
    return is_written;
}

void pid_file_remove(struct pid_file *pid_file)
{
    struct stat status;

    if (pid_file->path == NULL) {
        return;
    }
    if (lstat(pid_file->path, &status) == 0 && status.st_dev == pid_file->device && status.st_ino == pid_file->inode) {
        unlink(pid_file->path);
    }
    close(pid_file->fd);
    free(pid_file->path);
    pid_file->path = NULL;
}
