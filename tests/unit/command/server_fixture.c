#include "server_fixture.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    pid_t pid;
    char directory[64];
    redisContext *connection;
} server;

redisReply *server_ask(int argc, const char **argv)
{
    return server_ask_bytes(argc, argv, NULL);
}

redisReply *server_ask_bytes(int argc, const char **argv, const size_t *lengths)
{
    redisReply *reply = redisCommandArgv(server.connection, argc, argv, lengths);
    cr_assert_not_null(reply, "%s", server.connection->errstr);
    return reply;
}

static redisContext *connect_patiently(const char *path)
{
    for (int i = 0; i < 1000; i++) {
        redisContext *connection = redisConnectUnix(path);
        if (connection != NULL && connection->err == 0)
            return connection;
        redisFree(connection);
        usleep(10000);
    }
    return NULL;
}

void server_start(void)
{
    char path[96];
    snprintf(server.directory, sizeof(server.directory), "/tmp/headgate-unit-XXXXXX");
    cr_assert_not_null(mkdtemp(server.directory));
    snprintf(path, sizeof(path), "%s/socket", server.directory);
    server.pid = fork();
    cr_assert_geq(server.pid, 0);
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when the test crashes */
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path, "--dir", server.directory, "--save",
               "", "--logfile", "log", (char *)NULL);
        _exit(127);
    }
    server.connection = connect_patiently(path);
    cr_assert_not_null(server.connection, "redis-server does not answer");
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

void server_stop(void)
{
    redisFree(server.connection);
    if (server.pid > 0) {
        kill(server.pid, SIGKILL);
        waitpid(server.pid, NULL, 0);
    }
    nftw(server.directory, remove_entry, 4, FTW_DEPTH | FTW_PHYS);
}
