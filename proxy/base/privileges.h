/*
 * Giving up root: a process that was started as root binds its addresses, and is another user from then on.
 */
#ifndef HEADGATE_PRIVILEGES_H
#define HEADGATE_PRIVILEGES_H

#include <stdbool.h>
#include <sys/types.h>

/* Who the process is to become. */
struct privileges {
    bool drops; /* false: it stays who it is */
    const char *user;
    uid_t uid;
    gid_t gid;
    uid_t own_uid; /* who it is as yet */
    gid_t own_gid;
};

/*
 * user "": nobody else. group "": the user's. A process that is that user already has nothing to give up. Otherwise it
 * has to be root. From here on no program that it might start gains rights. False: the log says why.
 */
bool privileges_find(struct privileges *privileges, const char *user, const char *group);

/* Acts as that user, with its groups, until privileges_resume(). False: the process is who it was. */
bool privileges_suspend(const struct privileges *privileges);
/* False: it is not, and has to end. */
bool privileges_resume(const struct privileges *privileges);

/* Whether that user could put something else in the place of the file, or of a directory or link on the way to it, so
 * that root would open what the user chose. */
bool privileges_may_exchange(const struct privileges *privileges, const char *path);

/* Becomes that user, with the groups that it is in, for good. To be called before there are threads. False: the log
 * says why. */
bool privileges_drop(const struct privileges *privileges);

#endif
