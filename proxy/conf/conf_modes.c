/* Who else may read a file that holds a secret. That is a warning: in a container what is mounted there often has no
 * narrower mode, and nobody else is there. */
#include "conf/conf_private.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUPS_MAX 256

/* Whether processes of that group are those that are to read it: this one, or what it becomes by user and group. */
static bool is_own_group(const struct conf *conf, gid_t group)
{
    gid_t groups[GROUPS_MAX];
    int count = getgroups(GROUPS_MAX, groups);
    const struct passwd *user = *conf->user != '\0' ? getpwnam(conf->user) : NULL;
    bool is_own = group == getegid() || (user != NULL && user->pw_gid == group);
    const struct group *other = *conf->group != '\0' ? getgrnam(conf->group) : NULL;

    is_own = is_own || (other != NULL && other->gr_gid == group);

    for (int i = 0; i < count; i++) {
        is_own = is_own || groups[i] == group;
    }
    return is_own;
}

static const char *who_else(const struct conf *conf, const struct stat *status, bool may_write)
{
    if ((status->st_mode & (may_write ? S_IWOTH : S_IROTH)) != 0) {
        return "every user of this machine";
    }
    bool by_group = (status->st_mode & (may_write ? S_IWGRP : S_IRGRP)) != 0;
    return by_group && !is_own_group(conf, status->st_gid) ? "its group" : NULL;
}

void conf_check_mode(struct conf_reading *reading, const char *path, const struct stat *status)
{
    const char *writer = who_else(reading->conf, status, true), *reader = who_else(reading->conf, status, false);

    if (S_ISREG(status->st_mode) && (writer != NULL || reader != NULL)) {
        conf_warn_file(reading, path, "holds a secret, and %s may %s it (mode %04o); chmod 0600 would not let them",
                       writer != NULL ? writer : reader, writer != NULL ? "write" : "read",
                       (unsigned)status->st_mode & 07777);
    }
}
