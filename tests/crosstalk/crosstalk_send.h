/* The means of the workload: appends commands to a client's output, and to its queue what they are to answer. */
#ifndef CROSSTALK_SEND_H
#define CROSSTALK_SEND_H

#include "crosstalk_client.h"
#include "crosstalk_text.h"

extern const char *const slot_names[SLOTS];

/* A line of that type with a count or length. */
void append_length(struct client *client, char type, size_t length);
void append_bulk(struct client *client, const char *data, size_t length);

/* Appends a command; the words are strings, ended by NULL. Counts it; what it is to answer is for the caller to say. */
__attribute__((sentinel)) void send_words(struct client *client, ...);

/* Expects a reply, in the protocol version that holds at this point. */
void expect(struct client *client, struct expectation expectation);
void expect_text(struct client *client, enum expect_kind kind, const char *text);
void expect_number(struct client *client, enum expect_kind kind, uint64_t number);
void expect_range(struct client *client, uint32_t low, uint32_t high);
void expect_array(struct client *client, uint32_t count);
void expect_ok(struct client *client);

/* For a new identity, which the second also writes. */
uint64_t next_sequence(struct client *client);
uint64_t next_identity(struct client *client, char *identity);

/* A key of the present user and generation in the present database; and what is stored under that of a slot. */
void own_key(struct client *client, char *key, const char *name);
uint64_t *own_slot(struct client *client, unsigned slot);

/* Commands that can also stand in a transaction: each is appended, and what it is to answer returned. */
struct expectation echo_send(struct client *client);
struct expectation set_send(struct client *client);
struct expectation set_slot_send(struct client *client, unsigned slot);
struct expectation get_send(struct client *client);
struct expectation increment_send(struct client *client);
struct expectation whoami_send(struct client *client);
struct expectation any_send(struct client *client);

#endif
