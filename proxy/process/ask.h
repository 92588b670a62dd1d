/*
 * Asking a Headgate that runs, from the command line: a connection, and answers of one line. Blocks.
 */
#ifndef HEADGATE_ASK_H
#define HEADGATE_ASK_H

#include "conf/conf.h"

#include <stdbool.h>
#include <stdio.h>

/* Of an answer. Bytes. */
#define ASK_ANSWER_BYTES 4608

/* The first address of the list at which TLS is not spoken, or is; NULL: none. */
const struct conf_address *ask_find(const struct conf_address_list *list, bool speaks_tls);
/* Connects there; each step may take so many seconds. The descriptor, or -1 with errno set. */
int ask_connect(const struct conf_address *address, int patience_s);
/* Sends the request, and reads the answer up to the end of its first line. False with errno set. */
bool ask(int fd, const char *request, size_t length, char answer[ASK_ANSWER_BYTES]);
/* With a line's end; others than Headgate may have said it, and it goes to a terminal. */
void ask_print(FILE *out, const char *answer);

#endif
