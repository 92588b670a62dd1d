/*
 * Where the keys of one request are, as Redis says it (COMMAND GETKEYS, since 2.8.13): of commands whose keys nothing
 * else tells. Redis executes nothing for it, and looks at no rights to keys. What it says holds for that request only,
 * as any of its arguments may decide.
 *
 * It is asked as Headgate's own user, who has most often been told of the command, and if that may not ask, as the
 * client's. Who may not is not asked for again for a minute, as Redis writes down who was refused (ACL LOG).
 */
#ifndef HEADGATE_CONTROL_KEYS_H
#define HEADGATE_CONTROL_KEYS_H

#include "upstream/control.h"

/* A longer request is not asked about: it would be sent twice. Bytes. */
#define CONTROL_KEYS_MAX ((size_t)64 * 1024)
/* Nor is anything while so much is: clients may have gone by the time that Redis answers. Bytes. */
#define CONTROL_KEYS_UNDER_WAY_MAX ((size_t)4 * 1024 * 1024)

/* keys: an array of texts; NULL: Redis did not say. none: the request has no keys, or Redis will refuse it. */
typedef void control_keys_callback(void *context, const redisReply *keys, bool none);

/* Asks about a whole request in multibulk form, of CONTROL_KEYS_MAX bytes at most, which is copied. profile: that of
 * its client. answered is called exactly once, possibly before this returns. */
void control_ask_keys(struct control *control, struct profile *profile, struct slice request,
                      control_keys_callback *answered, void *context);

#endif
