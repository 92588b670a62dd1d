/*
 * What Headgate learns from Redis itself: its version, and the commands that are not in its own table (modules, newer
 * servers). Asked whenever the connection has been made anew, and about a name when a client uses it first: so renamed
 * commands are known for what they are.
 */
#ifndef HEADGATE_LEARN_H
#define HEADGATE_LEARN_H

#include "command/command.h"
#include "upstream/control.h"

struct learn;

enum learn_answer { LEARN_UNKNOWN, LEARN_HAS, LEARN_LACKS };

struct learn *learn_new(struct control *control);
void learn_free(struct learn *learn);

/* Asks Redis. What was learned before stays valid. */
void learn_again(struct learn *learn);

/* Told whenever Redis has said, of Headgate itself, whether scripts may be run: why not, or NULL. learn_again() asks
 * for EVALSHA only, which may be all that is ever needed. */
typedef void learn_scripts_callback(void *context, const char *why);

/* From now on that is called; nobody is told before. */
void learn_tell_scripts(struct learn *learn, learn_scripts_callback *told, void *context);
/* Asks for EVAL, too: a script that Redis does not know needs it. */
void learn_ask_for_scripts(struct learn *learn);

/* Redis' version as major * 65536 + minor * 256 + patch; 0: not known yet, or Redis does not tell. */
uint32_t learn_redis_version(const struct learn *learn);
/* Redis' clock minus ours in µs when asked last, for operators; INT64_MIN: not known. */
int64_t learn_clock_offset_us(const struct learn *learn);
/* Whether Redis has a command of that name. */
enum learn_answer learn_server_has(const struct learn *learn, struct slice name);
/* A learned command, or NULL. The result lives as long as learn. */
const struct command *learn_find(const struct learn *learn, struct slice name);
/* The command of our own table that the server has under that name (rename-command), or NULL. */
const struct command *learn_renamed(const struct learn *learn, struct slice name);

enum learn_lookup {
    LEARN_LOOKUP_FOUND,  /* learn_find() or learn_renamed() knows it now */
    LEARN_LOOKUP_ABSENT, /* Redis has no command of that name */
    LEARN_LOOKUP_UNSAID  /* Redis did not tell: the user may not ask, or it cannot be reached */
};

typedef void learn_lookup_callback(void *context, enum learn_lookup found);

/* The longest name that is asked about. Bytes. */
#define LEARN_NAME_MAX 64

/* Asks Redis about a name of at most LEARN_NAME_MAX bytes that is not known here, as a user of that profile. done is
 * called exactly once, possibly before this returns. */
void learn_look_up(struct learn *learn, struct profile *profile, struct slice name, learn_lookup_callback *done,
                   void *context);

#endif
