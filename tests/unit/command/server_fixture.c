#include "server_fixture.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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

redisReply *server_command(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisReply *reply = redisvCommand(server.connection, format, arguments);
    va_end(arguments);
    cr_assert_not_null(reply, "%s", server.connection->errstr);
    return reply;
}

redisContext *server_connect(void)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/socket", server.directory);
    for (int i = 0; i < 1000; i++) {
        redisContext *connection = redisConnectUnix(path);
        if (connection != NULL && connection->err == 0)
            return connection;
        redisFree(connection);
        usleep(10000);
    }
    return NULL;
}

/* arguments: of the command line behind those that all have, up to a NULL. */
static void start_with(const char *const *further)
{
    char path[96];
    snprintf(server.directory, sizeof(server.directory), "/tmp/headgate-unit-XXXXXX");
    cr_assert_not_null(mkdtemp(server.directory));
    snprintf(path, sizeof(path), "%s/socket", server.directory);
    const char *arguments[24] = {"redis-server",   "--port", "0", "--unixsocket", path, "--dir",
                                 server.directory, "--save", "",  "--logfile",    "log"};
    size_t count = 11;
    for (; *further != NULL; further++) {
        cr_assert_lt(count, 23);
        arguments[count++] = *further;
    }
    server.pid = fork();
    cr_assert_geq(server.pid, 0);
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when the test crashes */
        execvp("redis-server", (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    server.connection = server_connect();
    cr_assert_not_null(server.connection, "redis-server does not answer");
}

void server_start(void)
{
    static const char *const none[] = {NULL};

    start_with(none);
}

/* One that nobody has just now. */
static void free_port(char *text, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    snprintf(text, size, "%d", ntohs(address.sin_port));
}

void server_start_node(void)
{
    char bus[8];
    const char *const node[] = {"--cluster-enabled", "yes", "--cluster-port", bus, "--bind", "127.0.0.1", NULL};

    free_port(bus, sizeof(bus));
    start_with(node);
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
