#include "redis_fixture.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_PATIENCE_MS 10000

redisContext *redis;

static char directory[] = "/tmp/headgate-lua-XXXXXX";
static char socket_path[64];
static pid_t server;

static void run_server(void)
{
    /* A test that crashes takes its server with it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen("/dev/null", "w", stdout) == NULL) {
        _exit(126);
    }
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_path, "--save", "", "--dir", directory,
           (char *)NULL);
    _exit(127);
}

void start_redis(void)
{
    cr_assert_not_null(mkdtemp(directory));
    snprintf(socket_path, sizeof socket_path, "%s/redis.sock", directory);
    server = fork();
    if (server == 0) {
        run_server();
    }
    for (int waited = 0; waited < START_PATIENCE_MS; waited += 10) {
        redis = redisConnectUnix(socket_path);
        if (redis != NULL && redis->err == 0) {
            return;
        }
        redisFree(redis);
        redis = NULL;
        usleep(10000);
    }
    cr_assert_fail("redis-server did not start");
}

void stop_redis(void)
{
    redisFree(redis);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    unlink(socket_path);
    rmdir(directory);
}

void load_script(const struct script *script)
{
    redisReply *reply = redisCommand(redis, "SCRIPT LOAD %b", script->text, script->length);

    cr_assert_not_null(reply, "%s", redis->errstr);
    cr_assert_eq(reply->type, REDIS_REPLY_STRING, "lua/%s.lua: %s", script->name, reply->str);
    cr_assert_str_eq(reply->str, script->sha1, "lua/%s.lua", script->name);
    freeReplyObject(reply);
}

struct runner with_redis_clock(const char *name)
{
    struct runner runner;

    load_script(script_find(name));
    snprintf(runner.digest, sizeof runner.digest, "%s", script_find(name)->sha1);
    return runner;
}

struct runner with_clock(const char *clock, const char *name)
{
    struct runner runner;
    char text[16384];
    int length = snprintf(text, sizeof text, "%s%s", clock, script_find(name)->text);

    cr_assert_lt((size_t)length, sizeof text);
    redisReply *reply = checked(ask("SCRIPT LOAD %s", text), REDIS_REPLY_STRING);
    snprintf(runner.digest, sizeof runner.digest, "%s", reply->str);
    freeReplyObject(reply);
    return runner;
}

redisReply *ask(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisReply *reply = redisvCommand(redis, format, arguments);
    va_end(arguments);
    cr_assert_not_null(reply, "%s", redis->errstr);
    return reply;
}

redisReply *checked(redisReply *reply, int type)
{
    cr_assert_neq(reply->type, REDIS_REPLY_ERROR, "%s", reply->str);
    cr_assert_eq(reply->type, type);
    return reply;
}

void tell(redisReply *reply)
{
    cr_assert_neq(reply->type, REDIS_REPLY_ERROR, "%s", reply->str);
    freeReplyObject(reply);
}

int64_t integer_of(redisReply *reply)
{
    int64_t integer = checked(reply, REDIS_REPLY_INTEGER)->integer;

    freeReplyObject(reply);
    return integer;
}

void assert_error(redisReply *reply, const char *text)
{
    cr_assert_eq(reply->type, REDIS_REPLY_ERROR, "no error, where there ought to be: %s", text);
    cr_assert_str_eq(reply->str, text);
    freeReplyObject(reply);
}

void assert_error_begins(redisReply *reply, const char *text)
{
    cr_assert_eq(reply->type, REDIS_REPLY_ERROR, "no error, where there ought to be: %s", text);
    cr_assert_eq(strncmp(reply->str, text, strlen(text)), 0, "%s", reply->str);
    freeReplyObject(reply);
}

int64_t chance(int64_t bound)
{
    static uint64_t state = 88172645463325252;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)(state % (uint64_t)bound);
}
