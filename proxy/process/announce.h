/*
 * What is said of a configuration: in the log of a process that begins to serve, and to who asks for nothing more.
 */
#ifndef HEADGATE_ANNOUNCE_H
#define HEADGATE_ANNOUNCE_H

#include "conf/conf.h"

/* Logs the version, the servers and their addresses. */
void announce(const struct conf *conf);
/* Prints that it is sound, or, if that is asked for, all of it; and what it is warned of. path: NULL: no file. */
void announce_sound(const struct conf *conf, const char *path, const struct conf_faults *faults, bool whole);

#endif
