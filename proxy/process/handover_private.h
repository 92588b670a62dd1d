/*
 * What the files of the hand-over share:
 *
 *   handover.c        what both sides have in common
 *   handover_old.c    the process that starts another one
 *   handover_new.c    the one that was started
 *   handover_start.c  starting it
 *   handover_line.c, handover_share.c  see their headers
 */
#ifndef HEADGATE_HANDOVER_PRIVATE_H
#define HEADGATE_HANDOVER_PRIVATE_H

#include "process/handover.h"

/* Where the new process finds its end of the line. */
#define HANDOVER_VARIABLE "HEADGATE_UPGRADE_FD"
#define HANDOVER_FD 3
/* Of what is said on the line about sockets. Of the rest, what is not known is passed over. */
#define HANDOVER_VERSION "1"

/* The process that is to take over is told by it that another one serves should this one crash before that. */
#define HANDOVER_GUARDED "GUARDED"
#define HANDOVER_RELEASE "RELEASE"

/* Starts the program with that end of a line. The number of the process; -1 with errno set. */
pid_t handover_start_program(const struct handover *handover, int fd);

#endif
