/* hiredis with callbacks, and an event loop of poll() in each thread. */
#include "protocol.h"

#include <hiredis/async.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 100

/* A connection, and the lines that its replies are told to. */
struct client {
    redisAsyncContext *context; /* NULL as soon as hiredis has let go of it */
    struct answer *lines;
    bool reading, writing;
    bool connected;
    int expected; /* replies */
    int failed;
    int blocked;
    bool is_nil;        /* the last reply */
    long long deadline; /* when hiredis wants to be told that time is up; 0: never */
    int invalid;        /* keys that pushes have told of */
    char cursor[32];    /* of the last SCAN */
    size_t found;       /* keys by it */
};

/* ---- what hiredis wants of an event loop ---- */

static void want_read(void *client)
{
    ((struct client *)client)->reading = true;
}

static void want_no_read(void *client)
{
    ((struct client *)client)->reading = false;
}

static void want_write(void *client)
{
    ((struct client *)client)->writing = true;
}

static void want_no_write(void *client)
{
    ((struct client *)client)->writing = false;
}

static void forget(void *client)
{
    ((struct client *)client)->reading = ((struct client *)client)->writing = false;
    ((struct client *)client)->deadline = 0;
}

static void want_timer(void *client, struct timeval after)
{
    ((struct client *)client)->deadline = now_ms() + after.tv_sec * 1000 + after.tv_usec / 1000;
}

/* Runs the loop of one connection once, for so long at most. */
static void turn(struct client *client, int wait_ms)
{
    struct pollfd fd = {.fd = client->context->c.fd};

    fd.events = (short)((client->reading ? POLLIN : 0) | (client->writing ? POLLOUT : 0));
    if (poll(&fd, 1, wait_ms) <= 0) {
        if (client->deadline && now_ms() >= client->deadline) {
            client->deadline = 0;
            redisAsyncHandleTimeout(client->context);
        }
        return;
    }
    if (fd.revents & (POLLIN | POLLERR | POLLHUP))
        redisAsyncHandleRead(client->context);
    if (client->context && client->writing && fd.revents & POLLOUT)
        redisAsyncHandleWrite(client->context);
}

/* Until so many replies are still to come. */
static void await(struct client *client, int left)
{
    long long end = now_ms() + PATIENCE_MS;

    while (client->context && client->expected > left && now_ms() < end)
        turn(client, 100);
    if (client->expected > left && client->lines)
        tell_error(client->lines, "no reply");
}

/* ---- connections ---- */

static void on_connected(const redisAsyncContext *context, int status)
{
    struct client *client = context->data;

    client->connected = status == REDIS_OK;
    if (status != REDIS_OK)
        client->context = NULL;
}

static void on_disconnected(const redisAsyncContext *context, int status)
{
    (void)status;
    ((struct client *)context->data)->context = NULL;
}

static bool start(struct client *client)
{
    redisAsyncContext *context = redisAsyncConnect(host, port);
    long long end = now_ms() + PATIENCE_MS;

    if (!context || context->err) {
        if (context)
            redisAsyncFree(context);
        return false;
    }
    client->context = context;
    client->connected = false;
    context->data = context->ev.data = client;
    context->ev.addRead = want_read;
    context->ev.delRead = want_no_read;
    context->ev.addWrite = want_write;
    context->ev.delWrite = want_no_write;
    context->ev.cleanup = forget;
    context->ev.scheduleTimer = want_timer;
    secure(&context->c);
    redisAsyncSetConnectCallback(context, on_connected);
    redisAsyncSetDisconnectCallback(context, on_disconnected);
    while (client->context && !client->connected && now_ms() < end)
        turn(client, 100);
    return client->connected;
}

static void *open_client(void)
{
    struct client *client = calloc(1, sizeof(*client));

    if (!client || !start(client)) {
        fputs("cannot connect\n", stderr);
        exit(1);
    }
    return client;
}

static void close_client(void *argument)
{
    struct client *client = argument;

    if (client->context)
        redisAsyncFree(client->context);
    free(client);
}

/* ---- commands ---- */

static void on_reply(redisAsyncContext *context, void *reply, void *silent)
{
    struct client *client = context->data;

    client->expected--;
    client->is_nil = reply && ((redisReply *)reply)->type == REDIS_REPLY_NIL;
    if (!reply)
        client->failed++;
    else if (silent)
        client->blocked = blocked_in(reply);
    else if (client->lines)
        tell_reply(client->lines, reply, "");
}

/* Asks, and does not wait. */
static void send_command(struct client *client, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    if (client->context && redisvAsyncCommand(client->context, on_reply, NULL, format, arguments) == REDIS_OK)
        client->expected++;
    else
        client->failed++;
    va_end(arguments);
}

/* The same, and waits for all that is to come. */
#define ASK(client, ...)                                                                                               \
    do {                                                                                                               \
        send_command(client, __VA_ARGS__);                                                                             \
        await(client, 0);                                                                                              \
    } while (0)

static struct client *with_lines(void *argument, struct answer *lines)
{
    struct client *client = argument;

    client->lines = lines;
    client->failed = 0;
    return client;
}

/* ---- features ---- */

static void strings(void *argument, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, lines);

    ASK(client, "SET %s first", key);
    ASK(client, "GET %s", key);
    ASK(client, "GET %s:none", key);
    for (int number = 0; number < 3; number++)
        ASK(client, "INCR %s:count", key);
    ASK(client, "MGET %s %s:count %s:none", key, key, key);
}

static void pipeline(void *argument, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, lines);

    for (int number = 0; number < 50; number++)
        send_command(client, "RPUSH %s %d", key, number);
    ASK(client, "LRANGE %s 0 -1", key);
}

static void transaction(void *argument, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, lines);

    send_command(client, "MULTI");
    send_command(client, "SET %s 1", key);
    send_command(client, "INCR %s", key);
    ASK(client, "EXEC");
}

static void watch(void *argument, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, lines);
    struct client *rival = with_lines(open_client(), lines);

    for (int loses = 0; loses < 2; loses++) {
        ASK(client, "SET %s 5", key);
        ASK(client, "WATCH %s", key);
        ASK(client, "GET %s", key);
        if (loses)
            ASK(rival, "SET %s 7", key);
        send_command(client, "MULTI");
        send_command(client, "SET %s 10", key);
        send_command(client, "EXEC");
        ASK(client, "GET %s", key);
    }
    close_client(rival);
}

static void on_scanned(redisAsyncContext *context, void *argument, void *unused)
{
    struct client *client = context->data;
    redisReply *part = argument;

    (void)unused;
    client->expected--;
    snprintf(client->cursor, sizeof(client->cursor), "0");
    if (!part || part->type != REDIS_REPLY_ARRAY) {
        client->failed++;
        return;
    }
    snprintf(client->cursor, sizeof(client->cursor), "%s", part->element[0]->str);
    client->found += part->element[1]->elements;
}

static void scan(void *argument, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, lines);

    for (int number = 0; number < 30; number++)
        send_command(client, "SET %s:%d %d", key, number, number);
    await(client, 0);
    snprintf(client->cursor, sizeof(client->cursor), "0");
    client->found = 0;
    do {
        redisAsyncCommand(client->context, on_scanned, NULL, "SCAN %s MATCH %s:* COUNT 100", client->cursor, key);
        client->expected++;
        await(client, 0);
    } while (strcmp(client->cursor, "0") != 0);
    tell(lines, "%zu keys, %d failed", client->found, client->failed);
}

static void script(void *argument, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, lines);

    for (int number = 7; number <= 8; number++)
        ASK(client, "EVAL %s 1 %s %d", ADD, key, number);
}

/* Commands of several connections of one thread, none of which waits for another. */
static void concurrent(void *argument, const char *key, struct answer *lines)
{
    struct client *others[3];

    (void)argument;
    for (int number = 0; number < 3; number++)
        others[number] = with_lines(open_client(), lines);
    for (int number = 0; number < AT_ONCE; number++) {
        for (int other = 0; other < 3; other++)
            send_command(others[other], "SET %s:%d:%d %d", key, other, number, number);
        for (int other = 0; other < 3; other++)
            send_command(others[other], "GET %s:%d:%d", key, other, number);
    }
    for (int other = 0; other < 3; other++) {
        await(others[other], 0);
        close_client(others[other]);
    }
}

static void greeting(void *argument, const char *key, struct answer *lines)
{
    static const char *const ways[] = {"CLIENT SETNAME tested", "SELECT 3", "AUTH tested secret", "AUTH tested wrong"};
    struct client *client = with_lines(argument, lines);

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        struct client *own = with_lines(open_client(), lines);

        /* All of it at once. */
        send_command(own, "%s %s %s", "ECHO", "begins", "wrongly");
        redisAsyncCommand(own->context, on_reply, NULL, ways[i]);
        own->expected++;
        send_command(own, "SET %s %d", key, (int)i);
        ASK(own, "ACL WHOAMI");
        close_client(own);
        ASK(client, "GET %s", key);
    }
}

static void await_blocked(struct client *client, int wanted)
{
    long long end = now_ms() + PATIENCE_MS;

    for (client->blocked = -1; client->blocked != wanted && client->context && now_ms() < end; pause_ms(5)) {
        if (redisAsyncCommand(client->context, on_reply, client, "INFO clients") != REDIS_OK)
            break;
        client->expected++;
        await(client, 0);
    }
    tell(client->lines, "%d blocked", client->blocked);
}

static void abandoned(void *argument, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, lines);
    struct client *own = with_lines(open_client(), NULL);

    send_command(own, "BLPOP %s 0", key);
    while (own->writing)
        turn(own, 100);
    await_blocked(client, 1);
    close_client(own);
    await_blocked(client, 0);
    ASK(client, "RPUSH %s kept", key);
    ASK(client, "LRANGE %s 0 -1", key);
}

/* hiredis closes a connection whose reply comes too late. */
static void timeouts(void *argument, const char *key, struct answer *lines)
{
    struct client *own = with_lines(open_client(), NULL);

    (void)argument;
    redisAsyncSetTimeout(own->context, (struct timeval){.tv_usec = 500000});
    send_command(own, "BLPOP %s 3", key);
    await(own, 0);
    tell(lines, "%d failed, closed: %d", own->failed, !own->context);
    if (!own->context && !start(own))
        tell_error(lines, "cannot connect again");
    own->lines = lines;
    ASK(own, "SET %s:after mine", key);
    ASK(own, "GET %s:after", key);
    close_client(own);
}

static void blocking(void *argument, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, lines);
    struct client *other = with_lines(open_client(), NULL);

    ASK(client, "BLPOP %s 1", key);
    ASK(client, "RPUSH %s there", key);
    ASK(client, "BLPOP %s 20", key);
    send_command(client, "BLPOP %s 20", key);
    turn(client, 100);
    ASK(other, "RPUSH %s pushed", key);
    await(client, 0);
    close_client(other);
}

/* A subscription has one callback for all that comes. */
static void hear(void *argument, const char *const *words, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, lines);
    struct client *own = with_lines(open_client(), lines);

    redisAsyncCommand(own->context, on_reply, NULL, words[0], key);
    own->expected = 2;
    await(own, 1);
    redisAsyncCommand(client->context, on_reply, NULL, words[1], key);
    client->expected++;
    await(client, 0);
    await(own, 0);
    /* What it answers comes to the callback of the subscription. */
    redisAsyncCommand(own->context, NULL, NULL, words[2], key);
    own->expected = 1;
    await(own, 0);
    ASK(own, "ECHO %s", key);
    close_client(own);
}

static void subscribe(void *argument, const char *key, struct answer *lines)
{
    static const char *const words[] = {"SUBSCRIBE %s", "PUBLISH %s hello", "UNSUBSCRIBE %s"};

    hear(argument, words, key, lines);
}

static void patterns(void *argument, const char *key, struct answer *lines)
{
    static const char *const words[] = {"PSUBSCRIBE %s:*", "PUBLISH %s:one hello", "PUNSUBSCRIBE %s:*"};

    hear(argument, words, key, lines);
}

static void on_push(redisAsyncContext *context, void *reply)
{
    (void)reply;
    ((struct client *)context->data)->invalid++;
}

static void caching(void *argument, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, lines);
    struct client *own = with_lines(open_client(), NULL);
    long long end = now_ms() + PATIENCE_MS;

    redisAsyncSetPushCallback(own->context, on_push);
    ASK(own, "HELLO 3"); /* its reply has an id */
    own->lines = lines;
    ASK(own, "CLIENT TRACKING ON");
    ASK(client, "SET %s old", key);
    ASK(own, "GET %s", key);
    ASK(client, "SET %s new", key);
    while (own->context && own->invalid == 0 && now_ms() < end)
        turn(own, 100);
    tell(lines, "%d invalid", own->invalid);
    ASK(own, "GET %s", key);
    close_client(own);
}

/* Until the server has been killed and is there again, without its data. */
static void killed(void *argument, const char *key, struct answer *lines)
{
    struct client *client = with_lines(argument, NULL);
    long long end = now_ms() + PATIENCE_MS;

    ASK(client, "SET %s before", key);
    for (client->is_nil = false; !client->is_nil && now_ms() < end; pause_ms(10)) {
        if (!client->context) {
            client->expected = 0;
            start(client);
            continue;
        }
        ASK(client, "GET %s", key);
    }
    tell(lines, "lost=%d", client->failed);
    client->lines = lines;
    ASK(client, "SET %s:after there", key);
    ASK(client, "GET %s:after", key);
}

int main(int argc, char **argv)
{
    static const struct feature features[] = {
        {"strings", strings},     {"pipeline", pipeline}, {"transaction", transaction}, {"watch", watch},
        {"script", script},       {"scan", scan},         {"greeting", greeting},       {"concurrent", concurrent},
        {"abandoned", abandoned}, {"timeouts", timeouts}, {"blocking", blocking},       {"subscribe", subscribe},
        {"patterns", patterns},   {"caching", caching},   {"killed", killed},           {NULL, NULL},
    };
    static const struct program program = {open_client, close_client, features};

    return serve(&program, argc, argv);
}
