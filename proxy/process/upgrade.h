/*
 * headgate --upgrade: has a Headgate that runs replaced by the program as it is on disk now.
 */
#ifndef HEADGATE_UPGRADE_H
#define HEADGATE_UPGRADE_H

#include "conf/conf.h"

/*
 * Asks for it on the admin port, at its first address without TLS, with admin_password if there is one, and waits until
 * the new process serves. Prints what came of it. The exit status: 0 if it serves, else 1.
 */
int upgrade_run(const struct conf *conf);

#endif
