#include "base/privileges.h"

#include "base/log.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/prctl.h>
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

    *privileges = (struct privileges){.user = user};
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
