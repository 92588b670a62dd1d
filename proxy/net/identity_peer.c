/* Sources: Linux, unix(7), SO_PEERCRED; net/core/sock.c, SO_PEERGROUPS. */
#include "net/identity.h"

#include <string.h>

bool identity_find_peer(int fd, struct identity_peer *peer)
{
    struct sockaddr_storage own = {0};
    struct ucred who;
    socklen_t own_length = sizeof own, length = sizeof who,
              groups_length = IDENTITY_GROUPS_MAX * sizeof peer->groups[0];

    *peer = (struct identity_peer){.group_count = 1};
    if (getsockname(fd, (struct sockaddr *)&own, &own_length) != 0 || own.ss_family != AF_UNIX ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0 || who.uid == (uid_t)-1) {
        return false;
    }
    peer->uid = who.uid;
    peer->groups[0] = who.gid;
    /* Who is in too many groups to tell is known by the first of all alone. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, &peer->groups[1], &groups_length) == 0) {
        peer->group_count += groups_length / sizeof peer->groups[0];
    }
    return true;
}
