/*
 * What two processes tell each other of their counters while one takes over from the other: what each has counted since
 * it told last, and what others have told it, but not what it heard of that very process. Main thread only.
 *
 *   server, lines "name amount"
 */
#ifndef HEADGATE_HANDOVER_COUNTS_H
#define HEADGATE_HANDOVER_COUNTS_H

#include "process/handover_line.h"
#include "worker/servers.h"

/* Tables have a row for each server, with what another process knows of each counter. */
struct handover_counts {
    struct servers *servers;
    uint64_t **told;      /* the successor */
    uint64_t **told_back; /* the predecessor */
};

/* The servers must have been started, and outlive it. False when memory is short: there is nothing to close. */
bool handover_counts_open(struct handover_counts *counts, struct servers *servers);
void handover_counts_close(struct handover_counts *counts);

/* Says what is new to the process that knows what is in the table. */
void handover_counts_tell(const struct handover_counts *counts, struct handover_line *line, uint64_t **told);
/* Takes what that process has said. Counters that this version does not have are passed over. */
void handover_counts_hear(const struct handover_counts *counts, struct slice text, uint64_t **told);
/* The next successor knows nothing. */
void handover_counts_forget(const struct handover_counts *counts);
/* Metrics show from now on no more than the successor, and the predecessor, know. */
void handover_counts_bound(const struct handover_counts *counts, bool by_successor, bool by_predecessor);

/* ---- what is said about a server ---- */

/* The next line of the text, which is taken off it. False: there is none. */
bool handover_take_line(struct slice *text, struct slice *line);
/* False: it is no number of up to 18 digits. */
bool handover_read_number(struct slice text, uint64_t *number);
/* The server whose name the text begins with; NULL: it is gone. */
struct server *handover_take_server(const struct servers *servers, struct slice *text);

#endif
