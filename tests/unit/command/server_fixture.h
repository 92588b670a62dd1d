/* The installed redis-server, on a Unix socket in a directory of its own: started for each test, and ended with it. */
#ifndef HEADGATE_TESTS_SERVER_FIXTURE_H
#define HEADGATE_TESTS_SERVER_FIXTURE_H

#include <hiredis/hiredis.h>

void server_start(void);
/* The same as a node of a Redis Cluster, which has no slots yet. */
void server_start_node(void);
void server_stop(void);

/* Another connection, which is the caller's. */
redisContext *server_connect(void);

/* What it answers; the caller frees the reply. */
redisReply *server_ask(int argc, const char **argv);
redisReply *server_ask_bytes(int argc, const char **argv, const size_t *lengths);
/* The same of a format of hiredis'. */
redisReply *server_command(const char *format, ...);

#endif
