/*
 * What Headgate learns from Redis itself: its version, and the commands that are not in its own table (modules, newer
 * servers). Asked whenever the connection has been made anew, and about a name when a client uses it first: so renamed
 * commands are known for what they are.
 */
#ifndef HEADGATE_SERVER_INFO_H
#define HEADGATE_SERVER_INFO_H

#include "command/command.h"
#include "upstream/control.h"

struct server_info;

enum server_info_answer { SERVER_INFO_UNKNOWN, SERVER_INFO_HAS, SERVER_INFO_LACKS };

struct server_info *server_info_new(struct control *control);
void server_info_free(struct server_info *server_info);

/* Asks Redis. What was learned before stays valid. */
void server_info_again(struct server_info *server_info);
/* Now and then. Asks for Redis' clock when ours was set, or the machine has slept: Redis' may be the same. */
void server_info_tick(struct server_info *server_info);

/* Told whenever Redis has said, of Headgate itself, whether scripts may be run: why not, or NULL. server_info_again()
 * asks for EVALSHA only, which may be all that is ever needed. */
typedef void server_info_scripts_callback(void *context, const char *why);

/* From now on that is called; nobody is told before. */
void server_info_tell_scripts(struct server_info *server_info, server_info_scripts_callback *told, void *context);
/* Asks for EVAL, too: a script that Redis does not know needs it. */
void server_info_ask_for_scripts(struct server_info *server_info);

/* Redis' version as major * 65536 + minor * 256 + patch; 0: not known yet, or Redis does not tell. */
uint32_t server_info_redis_version(const struct server_info *server_info);
/* Redis' clock minus ours in µs when asked last, for operators; INT64_MIN: not known. */
int64_t server_info_clock_offset_us(const struct server_info *server_info);
/* The time by Redis' calendar in µs since 1970, by what was told last; ours, if it is not known. A step of our own
 * clock since then changes nothing, until Redis has been asked anew. */
int64_t server_info_redis_us(const struct server_info *server_info);
/* Whether Redis has a command of that name. */
enum server_info_answer server_info_server_has(const struct server_info *server_info, struct slice name);
/* A learned command, or NULL. The result lives as long as learn. */
const struct command *server_info_find(const struct server_info *server_info, struct slice name);
/* The command of our own table that the server has under that name (rename-command), or NULL. */
const struct command *server_info_renamed(const struct server_info *server_info, struct slice name);

enum server_info_lookup {
    SERVER_INFO_LOOKUP_FOUND,  /* server_info_find() or server_info_renamed() knows it now */
    SERVER_INFO_LOOKUP_ABSENT, /* Redis has no command of that name */
    SERVER_INFO_LOOKUP_UNSAID  /* Redis did not tell: the user may not ask, or it cannot be reached */
};

typedef void server_info_lookup_callback(void *context, enum server_info_lookup found);

/* The longest name that is asked about. Bytes. */
#define SERVER_INFO_NAME_MAX 64

/* Asks Redis about a name of at most SERVER_INFO_NAME_MAX bytes that is not known here, as a user of that profile. done
 * is called exactly once, possibly before this returns. */
void server_info_look_up(struct server_info *server_info, struct profile *profile, struct slice name,
                         server_info_lookup_callback *done, void *context);

#endif
