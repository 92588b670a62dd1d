/*
 * What Headgate learns from Redis itself: its version, and the commands that are not in its own table (modules, newer
 * servers). Asked whenever the connection has been made anew. Until a command is known, it is sent on an exclusive
 * lane.
 */
#ifndef HEADGATE_LEARN_H
#define HEADGATE_LEARN_H

#include "command.h"
#include "control.h"

struct learn;

enum learn_answer { LEARN_UNKNOWN, LEARN_HAS, LEARN_LACKS };

struct learn *learn_new(struct control *control);
void learn_free(struct learn *learn);

/* Asks Redis. What was learned before stays valid. */
void learn_again(struct learn *learn);

/* Redis' version as major * 65536 + minor * 256 + patch; 0: not known yet, or Redis does not tell. */
uint32_t learn_redis_version(const struct learn *learn);
/* Redis' clock minus ours in µs when asked last, for operators; INT64_MIN: not known. */
int64_t learn_clock_offset_us(const struct learn *learn);
/* Whether Redis has a command of that name. */
enum learn_answer learn_server_has(const struct learn *learn, struct slice name);
/* A learned command, or NULL. The result lives as long as learn. */
const struct command *learn_find(const struct learn *learn, struct slice name);

#endif
