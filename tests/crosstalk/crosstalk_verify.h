/* Judges one whole reply or push of a client; tells a violation, or takes what it fulfils from the queue. */
#ifndef CROSSTALK_VERIFY_H
#define CROSSTALK_VERIFY_H

#include "crosstalk_client.h"

void verify_frame(struct client *client, const char *data, size_t length);

/* Describes the expectation at the head of the client's queue; out holds 512 bytes. */
void verify_describe(const struct client *client, char *out);

#endif
