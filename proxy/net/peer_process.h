/*
 * Which process has a socket at the other end of a connection. The kernel tells the socket's number (peer.h), and
 * /proc/PID/fd tells which process has it. That takes time with many processes, so:
 *
 *   where sockets were found before ─► a few links are read, some µs
 *   those processes ─► all others, those of the socket's user first, the youngest before the older ─► in slices of up
 *   to 10 ms, a twentieth of the time
 *
 * Processes of other users are seen only by who may look at them (CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH), and those of
 * another pid namespace (container) by nobody. For Unix sockets the kernel says the process itself, by its number as it
 * was then: a process that began after the connection was there has got the number since.
 *
 * A socket that several processes have, as after fork(), is taken for that of the first one that is found. When that
 * ends and the socket is still open, it is to be looked for anew: where it was found before it is no more.
 */
#ifndef HEADGATE_PEER_PROCESS_H
#define HEADGATE_PEER_PROCESS_H

#include "net/peer.h"

struct peer_process {
    pid_t pid;
    uint64_t
        started; /* after the machine, in the kernel's ticks: a pid that is used again is another process; 0: untold */
    bool is_headgate; /* by the name of its program: whom it stands for cannot be told */
};

enum peer_search {
    PEER_FOUND,
    PEER_LATER, /* looking on would take too long now: ask again some ms later */
    PEER_UNTOLD /* it cannot be told */
};

/* Remembers where sockets were found. For one thread. */
struct peer_finder;

/* NULL when memory is short. */
struct peer_finder *peer_finder_new(void);
/* NULL is harmless. */
void peer_finder_free(struct peer_finder *finder);

/* Looks for the process of whom peer_find() has found; UNTOLD sets *why to a constant text. */
enum peer_search peer_finder_find(struct peer_finder *finder, const struct peer *peer, struct peer_process *process,
                                  const char **why);

/* Finds out which sockets the process has, for peer_finder_has(): in slices, as the search above. False: ask again some
 * ms later. What is known holds for a second. */
bool peer_finder_gather(struct peer_finder *finder, const struct peer_process *process);
/* Whether a connection that was there by then was there when that began; if not, the next one begins anew. */
bool peer_finder_reaches(struct peer_finder *finder, int64_t connected_us);
/* Whether the process that was looked at last has the other end of that connection, which it reaches. */
bool peer_finder_has(const struct peer_finder *finder, const struct peer *peer);

/* Whether the process is still there; one that has ended and waits for its parent is not. */
bool peer_process_lives(const struct peer_process *process);

#endif
