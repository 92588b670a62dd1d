/* hiredis, which waits for each reply, with its default settings. */
#define _GNU_SOURCE
#include "protocol.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

struct client {
    redisContext *context;
    redisContext *subscriber;
};

static redisContext *open_context(void)
{
    redisContext *context = redisConnect(host, port);

    if (context && context->err)
        fprintf(stderr, "%s\n", context->errstr);
    if (!context || context->err)
        exit(1);
    secure(context);
    return context;
}

static void *open_client(void)
{
    struct client *client = calloc(1, sizeof(*client));

    if (!client)
        exit(1);
    client->context = open_context();
    return client;
}

static void close_client(void *argument)
{
    struct client *client = argument;

    redisFree(client->context);
    if (client->subscriber)
        redisFree(client->subscriber);
    free(client);
}

/* Sends a command, in a format of hiredis, and tells its reply. */
static void ask(redisContext *context, struct answer *lines, const char *format, ...)
{
    va_list arguments;
    redisReply *reply;

    va_start(arguments, format);
    reply = redisvCommand(context, format, arguments);
    va_end(arguments);
    tell_reply(lines, reply, context->errstr);
    if (reply)
        freeReplyObject(reply);
}

/* The same of what comes without being asked for, or behind a pipeline. */
static void take(redisContext *context, struct answer *lines)
{
    void *reply = NULL;

    redisGetReply(context, &reply);
    tell_reply(lines, reply, context->errstr);
    if (reply)
        freeReplyObject(reply);
}

static redisContext *of(void *client)
{
    return ((struct client *)client)->context;
}

/* ---- features ---- */

static void strings(void *client, const char *key, struct answer *lines)
{
    redisContext *context = of(client);

    ask(context, lines, "SET %s first", key);
    ask(context, lines, "GET %s", key);
    ask(context, lines, "GET %s:none", key);
    for (int number = 0; number < 3; number++)
        ask(context, lines, "INCR %s:count", key);
    ask(context, lines, "SET %s:timed second EX 1000", key);
    ask(context, lines, "MGET %s %s:timed %s:none", key, key, key);
    ask(context, lines, "SET %s:bytes %b", key, "a\0b\r\n", (size_t)5);
    ask(context, lines, "STRLEN %s:bytes", key);
}

static void pipeline(void *client, const char *key, struct answer *lines)
{
    for (int number = 0; number < 50; number++)
        redisAppendCommand(of(client), "RPUSH %s %d", key, number);
    redisAppendCommand(of(client), "LRANGE %s 0 -1", key);
    for (int number = 0; number < 51; number++)
        take(of(client), lines);
}

static void transaction(void *client, const char *key, struct answer *lines)
{
    ask(of(client), lines, "MULTI");
    ask(of(client), lines, "SET %s 1", key);
    ask(of(client), lines, "INCR %s", key);
    ask(of(client), lines, "GET %s", key);
    ask(of(client), lines, "EXEC");
}

static void watch(void *client, const char *key, struct answer *lines)
{
    redisContext *rival = open_context();

    for (int loses = 0; loses < 2; loses++) {
        ask(of(client), lines, "SET %s 5", key);
        ask(of(client), lines, "WATCH %s", key);
        ask(of(client), lines, "GET %s", key);
        if (loses)
            ask(rival, lines, "SET %s 7", key);
        ask(of(client), lines, "MULTI");
        ask(of(client), lines, "SET %s 10", key);
        ask(of(client), lines, "EXEC");
        ask(of(client), lines, "GET %s", key);
    }
    redisFree(rival);
}

static void script(void *client, const char *key, struct answer *lines)
{
    redisReply *digest = redisCommand(of(client), "SCRIPT LOAD %s", ADD);

    if (!digest || digest->type != REDIS_REPLY_STRING) {
        tell_reply(lines, digest, of(client)->errstr);
        return;
    }
    for (int number = 7; number <= 8; number++)
        ask(of(client), lines, "EVALSHA %s 1 %s %d", digest->str, key, number);
    freeReplyObject(digest);
}

/* All keys of that name, by how many there are: their order is Redis' own. */
static void scan(void *client, const char *key, struct answer *lines)
{
    char cursor[32] = "0";
    size_t found = 0;

    for (int number = 0; number < 30; number++)
        ask(of(client), lines, "SET %s:%d %d", key, number, number);
    do {
        redisReply *part = redisCommand(of(client), "SCAN %s MATCH %s:* COUNT 100", cursor, key);

        if (!part || part->type != REDIS_REPLY_ARRAY) {
            tell_reply(lines, part, of(client)->errstr);
            return;
        }
        found += part->element[1]->elements;
        snprintf(cursor, sizeof(cursor), "%s", part->element[0]->str);
        freeReplyObject(part);
    } while (strcmp(cursor, "0") != 0);
    tell(lines, "%zu keys", found);
}

/* What comes before all else: names, users, databases, wrong passwords. */
static void greeting(void *client, const char *key, struct answer *lines)
{
    static const char *const ways[] = {"CLIENT SETNAME tested",
                                       "SELECT 3",
                                       "AUTH tested secret",
                                       "AUTH tested wrong",
                                       "HELLO 2 AUTH tested secret SETNAME tested",
                                       "HELLO 4",
                                       "CLIENT SETINFO lib-name x"};

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        redisContext *own = open_context();
        redisReply *reply = redisCommand(own, ways[i]);

        /* That of HELLO has an id. */
        if (!reply || strncmp(ways[i], "HELLO 2", 7) != 0)
            tell_reply(lines, reply, own->errstr);
        if (reply)
            freeReplyObject(reply);
        ask(own, lines, "SET %s %d", key, (int)i);
        ask(own, lines, "CLIENT GETNAME");
        ask(own, lines, "ACL WHOAMI");
        ask(of(client), lines, "GET %s", key);
        redisFree(own);
    }
}

static void await_blocked(redisContext *context, int wanted, struct answer *lines)
{
    long long end = now_ms() + PATIENCE_MS;
    int blocked = -1;

    while (blocked != wanted && now_ms() < end) {
        redisReply *info = redisCommand(context, "INFO clients");

        blocked = blocked_in(info);
        if (info)
            freeReplyObject(info);
        pause_ms(5);
    }
    tell(lines, "%d blocked", blocked);
}

/* A client that goes away while it blocks takes nothing with it. */
static void abandoned(void *client, const char *key, struct answer *lines)
{
    redisContext *own = open_context();
    int written = 0;

    redisAppendCommand(own, "BLPOP %s 0", key);
    while (!written && redisBufferWrite(own, &written) == REDIS_OK)
        ;
    await_blocked(of(client), 1, lines);
    redisFree(own);
    await_blocked(of(client), 0, lines);
    ask(of(client), lines, "RPUSH %s kept", key);
    ask(of(client), lines, "LRANGE %s 0 -1", key);
}

/* What times out leaves a context that can only be connected anew: what comes then is right. */
static void timeouts(void *client, const char *key, struct answer *lines)
{
    redisContext *own = open_context();
    struct timeval second = {.tv_sec = 1};
    redisReply *late;

    (void)client;
    redisSetTimeout(own, second);
    late = redisCommand(own, "BLPOP %s 4", key);
    tell(lines, "%s, error %d", late ? "a reply" : "no reply", own->err);
    if (late)
        freeReplyObject(late);
    second.tv_sec = PATIENCE_MS / 1000;
    tell(lines, "%d", redisReconnect(own));
    redisSetTimeout(own, second);
    ask(own, lines, "SET %s:after mine", key);
    ask(own, lines, "GET %s:after", key);
    redisFree(own);
}

static void *push(void *argument)
{
    redisContext *context = open_context();

    pause_ms(100);
    freeReplyObject(redisCommand(context, "RPUSH %s pushed", (const char *)argument));
    redisFree(context);
    return NULL;
}

static void blocking(void *client, const char *key, struct answer *lines)
{
    pthread_t pusher;

    ask(of(client), lines, "BLPOP %s 1", key);
    ask(of(client), lines, "RPUSH %s there", key);
    ask(of(client), lines, "BLPOP %s 20", key);
    if (pthread_create(&pusher, NULL, push, (void *)(size_t)key) != 0)
        abort();
    ask(of(client), lines, "BLPOP %s 20", key);
    pthread_join(pusher, NULL);
}

static void subscribe(void *client, const char *key, struct answer *lines)
{
    redisContext *subscriber = ((struct client *)client)->subscriber = open_context();

    ask(subscriber, lines, "SUBSCRIBE %s", key);
    ask(of(client), lines, "PUBLISH %s hello", key);
    take(subscriber, lines);
}

static void unsubscribe(void *client, const char *key, struct answer *lines)
{
    struct client *own = client;

    (void)key;
    ask(own->subscriber, lines, "UNSUBSCRIBE");
    ask(own->subscriber, lines, "ECHO ordinary");
    redisFree(own->subscriber);
    own->subscriber = NULL;
}

static void hear_once(void *client, const char *subscribe_to, const char *publish, const char *key,
                      struct answer *lines)
{
    redisContext *own = open_context();
    redisReply *reply;

    ask(own, lines, subscribe_to, key);
    reply = redisCommand(of(client), publish, key);
    tell_reply(lines, reply, of(client)->errstr);
    if (reply)
        freeReplyObject(reply);
    take(own, lines);
    redisFree(own);
}

static void patterns(void *client, const char *key, struct answer *lines)
{
    hear_once(client, "PSUBSCRIBE %s:*", "PUBLISH %s:one hello", key, lines);
}

static void shards(void *client, const char *key, struct answer *lines)
{
    hear_once(client, "SSUBSCRIBE %s", "SPUBLISH %s hello", key, lines);
}

#if HIREDIS_MAJOR >= 1

static void on_push(void *heard, void *reply)
{
    const redisReply *push = reply;

    if (push->elements > 0 && strcmp(push->element[0]->str, "invalidate") == 0)
        ++*(int *)heard;
    freeReplyObject(reply);
}

/* What was read is told to be invalid. Invalidations come before the reply to whatever is asked next. */
static void caching(void *client, const char *key, struct answer *lines)
{
    redisContext *own = open_context();
    long long end = now_ms() + PATIENCE_MS;
    int heard = 0;

    own->privdata = &heard;
    redisSetPushCallback(own, on_push);
    freeReplyObject(redisCommand(own, "HELLO 3"));
    ask(own, lines, "CLIENT TRACKING ON");
    ask(of(client), lines, "SET %s old", key);
    ask(own, lines, "GET %s", key);
    ask(of(client), lines, "SET %s new", key);
    while (heard == 0 && now_ms() < end) {
        freeReplyObject(redisCommand(own, "PING"));
        pause_ms(5);
    }
    tell(lines, "%d invalid", heard);
    ask(own, lines, "GET %s", key);
    redisFree(own);
}

#endif

/* Until the server has been killed and is there again, without its data. A context with an error is connected anew, as
 * hiredis does nothing by itself. */
static void killed(void *client, const char *key, struct answer *lines)
{
    long long end = now_ms() + PATIENCE_MS;
    redisContext *context = of(client);
    int lost = 0;

    freeReplyObject(redisCommand(context, "SET %s before", key));
    for (bool gone = false; !gone && now_ms() < end; pause_ms(10)) {
        redisReply *reply = context->err ? NULL : redisCommand(context, "GET %s", key);

        gone = reply && reply->type == REDIS_REPLY_NIL;
        lost += !reply || reply->type == REDIS_REPLY_ERROR;
        if (reply)
            freeReplyObject(reply);
        else
            redisReconnect(context);
    }
    tell(lines, "lost=%d", lost);
    ask(context, lines, "SET %s:after there", key);
    ask(context, lines, "GET %s:after", key);
}

int main(int argc, char **argv)
{
    static const struct feature features[] = {
        {"strings", strings},
        {"pipeline", pipeline},
        {"transaction", transaction},
        {"watch", watch},
        {"script", script},
        {"scan", scan},
        {"greeting", greeting},
        {"abandoned", abandoned},
        {"timeouts", timeouts},
        {"blocking", blocking},
        {"subscribe", subscribe},
        {"unsubscribe", unsubscribe},
        {"patterns", patterns},
        {"shards", shards},
#if HIREDIS_MAJOR >= 1
        {"caching", caching},
#endif
        {"killed", killed},
        {NULL, NULL},
    };
    static const struct program program = {open_client, close_client, features};

    return serve(&program, argc, argv);
}
