/*
 * Moves bytes from one socket to another inside the kernel: for long payloads, of which nothing has to be looked at,
 * that saves copying them in and out. The pipe in between is scratch: it is empty whenever nobody is at work with it.
 */
#ifndef HEADGATE_SPLICE_H
#define HEADGATE_SPLICE_H

#include "base/buffer.h"

#include <sys/types.h>

/* Not worth two system calls below this. Bytes. */
#define SPLICE_LEAST ((size_t)32 * 1024)

struct splice {
    int read_fd, write_fd; /* -1: there is no pipe */
};

/* Opens the pipe; false when the system refuses (then long payloads are copied). */
bool splice_open(struct splice *splice);
void splice_close(struct splice *splice);

/*
 * Moves at most `most` bytes from one non-blocking socket to another. Returns how many were taken, 0 if there are none
 * to be had this way (no pipe, or the end of the stream: reading tells), or -1 with errno set. Of those taken, the last
 * *left did not fit and have to be fetched with splice_fetch() before anything else is done.
 */
ssize_t splice_move(struct splice *splice, int from, int to, size_t most, size_t *left);

/* Moves the length bytes that are left to the end of a buffer; false when memory is short (they are lost then). */
bool splice_fetch(struct splice *splice, struct buffer_pool *pool, struct buffer *buffer, size_t length);

#endif
