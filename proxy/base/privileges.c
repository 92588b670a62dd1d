#include "base/privileges.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static bool find_group(struct privileges *privileges, const char *group)
{
    const struct group *entry;

    if (*group == '\0') {
        return true;
    }
    entry = getgrnam(group);
    if (entry == NULL) {
        log_error("privileges", "group = %s: there is no such group", group);
        return false;
    }
    privileges->gid = entry->gr_gid;
    return true;
}

bool privileges_find(struct privileges *privileges, const char *user, const char *group)
{
    const struct passwd *entry;

    *privileges = (struct privileges){.user = user, .own_uid = geteuid(), .own_gid = getegid()};
    if (*user == '\0') {
        return true;
    }
    entry = getpwnam(user);
    if (entry == NULL) {
        log_error("privileges", "user = %s: there is no such user", user);
        return false;
    }
    privileges->uid = entry->pw_uid;
    privileges->gid = entry->pw_gid;
    if (!find_group(privileges, group)) {
        return false;
    }
    privileges->drops = geteuid() != privileges->uid;
    if (privileges->drops && geteuid() != 0) {
        log_error("privileges", "user = %s: only root can become another user, and this is user %lu", user,
                  (unsigned long)geteuid());
        return false;
    }
    if (privileges->drops && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        log_error("privileges", "user = %s: the kernel does not take PR_SET_NO_NEW_PRIVS: %s", user, strerror(errno));
        return false;
    }
    return true;
}

/* ---- for a moment ---- */

bool privileges_suspend(const struct privileges *privileges)
{
    if (initgroups(privileges->user, privileges->gid) != 0 || setegid(privileges->gid) != 0) {
        return false;
    }
    if (seteuid(privileges->uid) == 0) {
        return true;
    }
    (void)!setegid(privileges->own_gid);
    return false;
}

bool privileges_resume(const struct privileges *privileges)
{
    return seteuid(privileges->own_uid) == 0 && setegid(privileges->own_gid) == 0;
}

/* next: the path up to what stands in the directory. In a sticky one, a directory of root's stays. */
static bool may_exchange_in(const char *directory, const char *next, uid_t uid)
{
    struct stat own, inner;

    if (stat(directory, &own) != 0) {
        /* Who cannot even look there changes nothing there. */
        return false;
    }
    bool is_held =
        (own.st_mode & S_ISVTX) != 0 && lstat(next, &inner) == 0 && S_ISDIR(inner.st_mode) && inner.st_uid == 0;
    return own.st_uid == uid || (faccessat(AT_FDCWD, directory, W_OK, AT_EACCESS) == 0 && !is_held);
}

/* As that user. */
static bool may_exchange_on(char *path, uid_t uid)
{
    bool may = *path != '/' && may_exchange_in(".", path, uid);

    for (char *slash = strchr(path, '/'); slash != NULL && !may; slash = strchr(slash + 1, '/')) {
        char *end = strchr(slash + 1, '/');
        char directory[PATH_MAX];
        snprintf(directory, sizeof directory, "%.*s", slash == path ? 1 : (int)(slash - path), path);
        if (end != NULL) {
            *end = '\0';
        }
        may = may_exchange_in(directory, path, uid);
        if (end != NULL) {
            *end = '/';
        }
    }
    return may;
}

/* Whether it is a link, to where nothing was looked at. That of /dev/stdout leads to what is open here already. */
static bool leads_on(const char *path)
{
    static const char opened[] = "/proc/self/fd/";
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target);

    return length >= 0 && !((size_t)length >= sizeof opened && memcmp(target, opened, sizeof opened - 1) == 0);
}

bool privileges_may_exchange(const struct privileges *privileges, const char *path)
{
    char given[PATH_MAX], real[PATH_MAX], resolved[PATH_MAX], last[PATH_MAX];

    if (snprintf(given, sizeof given, "%s", path) >= (int)sizeof given || leads_on(path)) {
        return true;
    }
    char *slash = strrchr(given, '/');
    snprintf(last, sizeof last, "%s", slash != NULL ? slash + 1 : given);
    snprintf(real, sizeof real, "%.*s", slash != NULL ? (int)(slash - given) + 1 : 1, slash != NULL ? given : ".");
    if (realpath(real, resolved) == NULL ||
        snprintf(real, sizeof real, "%s/%s", strcmp(resolved, "/") != 0 ? resolved : "", last) >= (int)sizeof real ||
        !privileges_suspend(privileges)) {
        return true;
    }
    bool may = may_exchange_on(given, privileges->uid) || may_exchange_on(real, privileges->uid);
    return !privileges_resume(privileges) || may;
}

/* ---- for good ---- */

/* There is no way back. */
static bool is_for_good(const struct privileges *privileges)
{
    uid_t real, effective, saved;
    bool is_user = getresuid(&real, &effective, &saved) == 0 && real == privileges->uid &&
                   effective == privileges->uid && saved == privileges->uid;

    return is_user && getegid() == privileges->gid && (privileges->uid == 0 || setuid(0) != 0);
}

bool privileges_drop(const struct privileges *privileges)
{
    if (!privileges->drops) {
        return true;
    }
    bool dropped = initgroups(privileges->user, privileges->gid) == 0 &&
                   setresgid(privileges->gid, privileges->gid, privileges->gid) == 0 &&
                   setresuid(privileges->uid, privileges->uid, privileges->uid) == 0;
    if (!dropped || !is_for_good(privileges)) {
        log_error("privileges", "cannot become user %s: %s", privileges->user,
                  dropped ? "root stays" : strerror(errno));
        return false;
    }
    log_info("privileges", "root is given up: this is user %s (%lu) from here on", privileges->user,
             (unsigned long)privileges->uid);
    return true;
}
