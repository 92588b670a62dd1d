/* Requests that the tests of leases make, and what Headgate reads from them. */
#ifndef HEADGATE_TESTS_LEASE_REQUEST_H
#define HEADGATE_TESTS_LEASE_REQUEST_H

#include "lease/lease_shape.h"

#include <string.h>

/* The SHA-1 of an empty text: the digest of no library's script. */
#define DIGEST_OF_NOTHING "da39a3ee5e6b4b0d3255bfef95601890afd80709"

/* The frame ends where its memory does, so that the sanitizer sees who reads on. The caller frees the bytes. */
struct request {
    char *bytes;
    size_t length;
    const struct command *command;
    struct lease_shape shape;
};

/* Not read yet. */
struct request request_of_words(const struct slice *words, size_t count);
void request_read(struct request *request);
/* The words stand between single blanks; two blanks hold an empty one. The command must be known. */
struct request request_of(const char *text);
/* What the request of that text means. */
enum lease_action request_action(const char *text);
/* Keys and tokens lie within the frame. */
void request_check_runs(const struct request *request);

/* The word at that place of a list with "|" between them; one without data behind the last. */
struct slice word_of(const char *list, size_t place);

/* The same on every run; the state must not be 0. */
uint32_t next_random(uint32_t *state);

#endif
