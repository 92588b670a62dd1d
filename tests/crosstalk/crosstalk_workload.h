/* What clients send: random units, each a command or a few that belong together (functions unit_…), with the replies to
 * expect. */
#ifndef CROSSTALK_WORKLOAD_H
#define CROSSTALK_WORKLOAD_H

#include "crosstalk_client.h"

/* Appends a pipeline of at least so many commands to the client's output. Returns how many there are. */
unsigned workload_pipeline(struct client *client, unsigned commands);

void workload_quit(struct client *client);

/* The last commands of a run, which show that the client still works in every respect. */
void workload_final(struct client *client);

#endif
