/*
 * The file with the number of the process, for supervisors and scripts that want one. It is put into place whole, by
 * renaming, so that no link of somebody else's is followed and no reader sees half a number; what a process left behind
 * that did not come to its end is replaced. Removed at the end, unless another process has put its own there. It is
 * kept open until then: its inode would otherwise be given to what others put in its place, and could not tell it from
 * ours.
 */
#ifndef HEADGATE_PID_FILE_H
#define HEADGATE_PID_FILE_H

#include <stdbool.h>
#include <sys/stat.h>

struct pid_file {
    char *path;   /* NULL: there is none of ours */
    dev_t device; /* by which it is known to be still ours */
    ino_t inode;
    int fd; /* keeps the inode from being given to another file */
};

/* path: "" for none. False with errno set, and nothing is there but what was. */
bool pid_file_write(struct pid_file *pid_file, const char *path);
void pid_file_remove(struct pid_file *pid_file);

#endif
