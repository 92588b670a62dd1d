/* A redis-server of a test's own, with a connection to it. */
#ifndef HEADGATE_TESTS_REDIS_FIXTURE_H
#define HEADGATE_TESTS_REDIS_FIXTURE_H

#include "upstream/script.h"

#include <hiredis/hiredis.h>
#include <stdint.h>

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

extern redisContext *redis;

/* The .init and the .fini of a test. */
void start_redis(void);
void stop_redis(void);

/* Has Redis know the script, by the digest that is embedded with it. */
void load_script(const struct script *script);

/* A script as Redis knows it. */
struct runner {
    char digest[41];
};

struct runner with_redis_clock(const char *name);
/* The same with Lua code in front of it that brings a clock of the test's own. */
struct runner with_clock(const char *clock, const char *name);

/* What Redis replies; the caller frees it. The format is hiredis'. */
redisReply *ask(const char *format, ...);
/* The reply, which has to be of that type. */
redisReply *checked(redisReply *reply, int type);
/* These free the reply, and fail if it is an error. */
void tell(redisReply *reply);
int64_t integer_of(redisReply *reply);
/* These free the reply, and fail unless it is this error, or one that begins so. */
void assert_error(redisReply *reply, const char *text);
void assert_error_begins(redisReply *reply, const char *text);

/* From 0 to below bound, always the same ones in a test. */
int64_t chance(int64_t bound);

#endif
