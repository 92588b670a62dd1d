#include "redis_fixture.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
