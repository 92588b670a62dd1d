/*
 * Lists of networks, as options name them: "10.0.0.0/8 ::1 unix", with blanks or commas between them; unix stands for
 * all who come by a Unix socket.
 */
#ifndef HEADGATE_NETWORKS_H
#define HEADGATE_NETWORKS_H

#include "conf/conf_table.h"

#include <sys/socket.h>

#define NETWORKS_EXPECTED "addresses, networks such as 10.0.0.0/8, and unix, with blanks or commas between them"

struct networks;

/* NULL if the text is faulty, with what is wrong in problem. Ends the program when memory is short. Freeing NULL does
 * nothing. */
struct networks *networks_compile(const char *text, char problem[CONF_PROBLEM_MAX]);
void networks_free(struct networks *networks);
bool networks_have(const struct networks *networks, const struct sockaddr_storage *address);

#endif
