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
};

/*
 * user "": nobody else. group "": the user's. A process that is that user already has nothing to give up. Otherwise it
 * has to be root. From here on no program that it might start gains rights. False: the log says why.
 */
bool privileges_find(struct privileges *privileges, const char *user, const char *group);

/* Becomes that user, with the groups that it is in, for good. To be called before there are threads. False: the log
 * says why. */
bool privileges_drop(const struct privileges *privileges);

#endif
