/* The limit of descriptors: each client and each lane is one. */
#ifndef HEADGATE_DESCRIPTORS_H
#define HEADGATE_DESCRIPTORS_H

#include "conf/conf.h"

/* Raises the limit as far as the system lets us, for the clients of all servers; logs if that is not enough for them.
 */
void descriptors_raise(const struct conf *conf);

#endif
