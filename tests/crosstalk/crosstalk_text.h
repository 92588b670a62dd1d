/*
 * Every text by which a client is told from the others.
 *
 * identity  xt:CLIENT:SEQUENCE;                                      unique for each use
 * value     an identity and padding whose length follows from it
 * message   xm:TO:FROM:GENERATION OF THE SENDER:NUMBER;              what one client sends to another
 * key       uUSER:CLIENT:GENERATION MODULO 256:DATABASE:NAME
 * channel   ch:CLIENT:GENERATION
 *
 * A client starts a new generation with every connection and whenever Redis lost its data: what an earlier connection
 * left under way can then disturb nothing. Keys are reused after 256 generations to bound the memory of Redis. Fewer
 * would not do: on a busy machine a client makes eight connections, one after the other, before a worker comes to what
 * the first one sent and left behind.
 */
#ifndef CROSSTALK_TEXT_H
#define CROSSTALK_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_MAX 256
#define KEY_GENERATIONS 256

struct message {
    uint32_t to;
    uint32_t from;
    uint32_t generation;
    uint64_t number;
};

/* Each writes a text ended by NUL to out, which holds TEXT_MAX bytes, and returns its length. */
size_t text_identity(char *out, uint32_t client, uint64_t sequence);
size_t text_value(char *out, uint32_t client, uint64_t sequence);
size_t text_key(char *out, unsigned user, uint32_t client, uint32_t generation, unsigned database, const char *name);
size_t text_channel(char *out, uint32_t client, uint32_t generation);
size_t text_message(char *out, const struct message *message);

/* False if it is not a message. */
bool text_message_parse(const char *data, size_t length, struct message *message);

/* Fills data with the identity over and over; or says whether it is so filled. */
void text_large_fill(char *data, size_t length, uint32_t client, uint64_t sequence);
bool text_large_is(const char *data, size_t length, uint32_t client, uint64_t sequence);

/* True if the bytes hold an identity of, or a message to, any other client. */
bool text_names_other(const char *data, size_t length, uint32_t client);

#endif
