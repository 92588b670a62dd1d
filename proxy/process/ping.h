/*
 * Asks a Headgate that runs whether it serves, for the health checks of containers and scripts.
 */
#ifndef HEADGATE_PING_H
#define HEADGATE_PING_H

#include "conf/conf.h"

/*
 * Sends a PING to the first address of clients that can be asked without a certificate or a PROXY header, by TLS if
 * there is none without, else, or if asks_admin, to the admin port. Prints what came back. The exit status: 0 if it is
 * PONG, that a password is wanted, that the user may not PING, or that a rule refuses it; else 1, also when there is no
 * answer within some seconds.
 */
int ping_run(const struct conf *conf, bool asks_admin);

#endif
