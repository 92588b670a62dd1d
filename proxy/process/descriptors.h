/* The limit of descriptors, and how many clients fit: each is one, and may need a lane of its own, which is one more.
 */
#ifndef HEADGATE_DESCRIPTORS_H
#define HEADGATE_DESCRIPTORS_H

#include "worker/servers.h"

/* Raises the limit as far as the system lets us, for the clients of all servers. */
void descriptors_raise(const struct conf *conf);
/* How many are open, as near as can be told: at the start, before clients come. */
size_t descriptors_in_use(void);
/* Lowers max_clients of all servers together to what fits beside those in use at the start, and says so in the log. For
 * when the servers go by conf. */
void descriptors_fit(struct servers *servers, const struct conf *conf, size_t in_use);

#endif
