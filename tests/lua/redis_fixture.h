/* A redis-server of a test's own, with a connection to it. */
#ifndef HEADGATE_TESTS_REDIS_FIXTURE_H
#define HEADGATE_TESTS_REDIS_FIXTURE_H

#include "script.h"

#include <hiredis/hiredis.h>

extern redisContext *redis;

/* The .init and the .fini of a test. */
void start_redis(void);
void stop_redis(void);

/* Has Redis know the script, by the digest that is embedded with it. */
void load_script(const struct script *script);

#endif
