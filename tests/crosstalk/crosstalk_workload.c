#include "crosstalk_workload.h"

#include "crosstalk_send.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LARGE_MIN ((uint32_t)16 * 1024)
#define LARGE_MAX ((uint32_t)1024 * 1024)
#define QUEUED_MAX 6

/* ---- units: plain commands ---- */

static void unit_echo(struct client *client)
{
    expect(client, echo_send(client));
}

static void unit_set(struct client *client)
{
    expect(client, set_send(client));
}

static void unit_get(struct client *client)
{
    expect(client, get_send(client));
}

static void unit_increment(struct client *client)
{
    expect(client, increment_send(client));
}

static void unit_whoami(struct client *client)
{
    expect(client, whoami_send(client));
}

static void unit_ping(struct client *client)
{
    char identity[TEXT_MAX];
    uint64_t sequence = next_identity(client, identity);
    send_words(client, "PING", identity, NULL);
    /* A subscribed RESP2 connection gets its pong in the form of a message. */
    if (client->session.subscribed && client->session.resp == 2) {
        expect_array(client, 2);
        expect_text(client, EXPECT_TEXT, "pong");
    }
    expect_number(client, EXPECT_IDENTITY, sequence);
}

static void unit_mget(struct client *client)
{
    char keys[2][TEXT_MAX];
    for (unsigned slot = 0; slot < 2; slot++) {
        if (*own_slot(client, slot) == 0)
            expect(client, set_slot_send(client, slot));
        own_key(client, keys[slot], slot_names[slot]);
    }
    send_words(client, "MGET", keys[0], keys[1], NULL);
    expect_array(client, 2);
    expect_number(client, EXPECT_VALUE, *own_slot(client, 0));
    expect_number(client, EXPECT_VALUE, *own_slot(client, 1));
}

static void unit_large(struct client *client)
{
    char key[TEXT_MAX];
    uint64_t sequence = next_sequence(client);
    uint32_t length = LARGE_MIN + client_random(client, LARGE_MAX - LARGE_MIN + 1);
    own_key(client, key, "large");
    append_length(client, '*', 5);
    append_bulk(client, "SET", 3);
    append_bulk(client, key, strlen(key));
    append_length(client, '$', length);
    text_large_fill(buffer_reserve(&client->out, length), length, client->index, sequence);
    buffer_commit(&client->out, length);
    buffer_append(&client->out, "\r\n", 2);
    /* It goes by itself if the connection ends before DEL. */
    append_bulk(client, "EX", 2);
    append_bulk(client, "300", 3);
    client->figures->requests++;
    expect_ok(client);
    send_words(client, "GET", key, NULL);
    expect(client, (struct expectation){.kind = EXPECT_LARGE, .count = length, .number = (int64_t)sequence});
    send_words(client, "DEL", key, NULL);
    expect_number(client, EXPECT_INTEGER, 1);
}

/* ---- units: transactions ---- */

static void unit_multi(struct client *client)
{
    struct expectation queued[QUEUED_MAX];
    uint32_t count = 1 + client_random(client, QUEUED_MAX);
    send_words(client, "MULTI", NULL);
    expect_ok(client);
    for (uint32_t at = 0; at < count; at++) {
        queued[at] = any_send(client);
        expect_text(client, EXPECT_STATUS, "QUEUED");
    }
    send_words(client, "EXEC", NULL);
    expect_array(client, count);
    for (uint32_t at = 0; at < count; at++)
        expect(client, queued[at]);
}

static void unit_discard(struct client *client)
{
    send_words(client, "MULTI", NULL);
    expect_ok(client);
    for (uint32_t left = client_random(client, QUEUED_MAX); left > 0; left--) {
        echo_send(client);
        expect_text(client, EXPECT_STATUS, "QUEUED");
    }
    send_words(client, "DISCARD", NULL);
    expect_ok(client);
}

static void unit_abort(struct client *client)
{
    send_words(client, "MULTI", NULL);
    expect_ok(client);
    send_words(client, "GET", NULL);
    expect_text(client, EXPECT_ERROR, "ERR wrong number of arguments for 'get' command");
    echo_send(client);
    expect_text(client, EXPECT_STATUS, "QUEUED");
    send_words(client, "EXEC", NULL);
    expect_text(client, EXPECT_ERROR, "EXECABORT ");
}

static void unit_watch(struct client *client)
{
    char key[TEXT_MAX];
    unsigned slot = client_random(client, SLOTS);
    bool touched = client_random(client, 2) == 0;
    own_key(client, key, slot_names[slot]);
    send_words(client, "WATCH", key, NULL);
    expect_ok(client);
    if (touched)
        expect(client, set_slot_send(client, slot));
    if (client_random(client, 4) == 0) {
        send_words(client, "UNWATCH", NULL);
        expect_ok(client);
        touched = false;
    }
    send_words(client, "MULTI", NULL);
    expect_ok(client);
    struct expectation echoed = echo_send(client);
    expect_text(client, EXPECT_STATUS, "QUEUED");
    send_words(client, "EXEC", NULL);
    if (touched) {
        expect_text(client, EXPECT_NULL_ARRAY, NULL);
        return;
    }
    expect_array(client, 1);
    expect(client, echoed);
}

/*
 * All clients write what they watch here. So a watch that stands when the connection to Redis is somebody else's makes
 * the next transaction there fail, and is seen, wherever its client has ended.
 */
static void unit_watch_shared(struct client *client)
{
    static const char *const ends[] = {"UNWATCH", "DISCARD", "EXEC"};
    uint32_t end = client_random(client, 3);
    send_words(client, "WATCH", "life:watched", NULL);
    expect_ok(client);
    send_words(client, "SET", "life:watched", "1", NULL);
    expect_ok(client);
    if (end > 0) {
        send_words(client, "MULTI", NULL);
        expect_ok(client);
        echo_send(client);
        expect_text(client, EXPECT_STATUS, "QUEUED");
    }
    send_words(client, ends[end], NULL);
    expect_text(client, end == 2 ? EXPECT_NULL_ARRAY : EXPECT_STATUS, end == 2 ? NULL : "OK");
}

/* ---- units: blocking commands ---- */

static void unit_list(struct client *client)
{
    struct session *session = &client->session;
    char key[TEXT_MAX];
    char identity[TEXT_MAX];
    bool *clean = &session->list_clean[session->user][session->database];
    own_key(client, key, "list");
    if (!*clean) {
        send_words(client, "DEL", key, NULL);
        expect_range(client, 0, 1);
        *clean = true;
    }
    uint64_t sequence = next_identity(client, identity);
    send_words(client, "LPUSH", key, identity, NULL);
    expect_number(client, EXPECT_INTEGER, 1);
    send_words(client, "BLPOP", key, "1", NULL);
    expect_array(client, 2);
    expect(client, (struct expectation){.kind = EXPECT_LIST_KEY,
                                        .number = client_generation(client),
                                        .count = expect_pack(session->user, session->database)});
    expect_number(client, EXPECT_IDENTITY, sequence);
}

static void unit_timeout(struct client *client)
{
    char key[TEXT_MAX];
    own_key(client, key, "nothing");
    send_words(client, "BLPOP", key, client_random(client, 2) == 0 ? "0.01" : "0.03", NULL);
    expect_text(client, EXPECT_NULL_ARRAY, NULL);
}

/* ---- units: messages to others ---- */

static void unit_publish(struct client *client)
{
    char channel[TEXT_MAX];
    char message[TEXT_MAX];
    uint32_t neighbour = client_random(client, NEIGHBOURS);
    uint32_t to = (client->index + 1 + neighbour) % client->run->options.clients;
    text_message(message,
                 &(struct message){to, client->index, client_generation(client), ++client->published[neighbour]});
    text_channel(channel, to, client_generation(&client->run->clients[to]));
    send_words(client, "PUBLISH", channel, message, NULL);
    expect_range(client, 0, 1);
}

static void unit_subscribe(struct client *client)
{
    struct session *session = &client->session;
    char channel[TEXT_MAX];
    if (session->subscribed) {
        text_channel(channel, client->index, session->channel);
        send_words(client, "UNSUBSCRIBE", channel, NULL);
        expect_number(client, EXPECT_UNSUBSCRIBED, session->channel);
    } else {
        session->channel = client_generation(client);
        text_channel(channel, client->index, session->channel);
        send_words(client, "SUBSCRIBE", channel, NULL);
        expect_number(client, EXPECT_SUBSCRIBED, session->channel);
    }
    session->subscribed = !session->subscribed;
}

/* What a subscribed RESP2 connection must not do. */
static void unit_forbidden(struct client *client)
{
    char key[TEXT_MAX];
    own_key(client, key, slot_names[0]);
    send_words(client, "GET", key, NULL);
    expect_text(client, EXPECT_ERROR, "ERR Can't execute 'get': only (P|S)SUBSCRIBE");
}

static void unit_tracking(struct client *client)
{
    char key[TEXT_MAX];
    if (client->session.resp != 3) {
        unit_echo(client);
        return;
    }
    if (*own_slot(client, 0) == 0)
        expect(client, set_slot_send(client, 0));
    own_key(client, key, slot_names[0]);
    send_words(client, "CLIENT", "TRACKING", "ON", NULL);
    expect_ok(client);
    send_words(client, "GET", key, NULL);
    expect_number(client, EXPECT_VALUE, *own_slot(client, 0));
    expect(client, set_slot_send(client, 0));
    send_words(client, "CLIENT", "TRACKING", "OFF", NULL);
    expect_ok(client);
}

/* ---- units: the state of the connection ---- */

static void unit_set_name(struct client *client)
{
    char identity[TEXT_MAX];
    client->session.name = next_identity(client, identity);
    send_words(client, "CLIENT", "SETNAME", identity, NULL);
    expect_ok(client);
}

static void unit_get_name(struct client *client)
{
    send_words(client, "CLIENT", "GETNAME", NULL);
    if (client->session.name == 0)
        expect_text(client, EXPECT_NULL, NULL);
    else
        expect_number(client, EXPECT_IDENTITY, client->session.name);
}

static void unit_client_id(struct client *client)
{
    send_words(client, "CLIENT", "ID", NULL);
    expect_text(client, EXPECT_CLIENT_ID, NULL);
}

static void unit_client_info(struct client *client)
{
    struct session *session = &client->session;
    send_words(client, "CLIENT", "INFO", NULL);
    expect(client, (struct expectation){.kind = EXPECT_CLIENT_INFO,
                                        .number = (int64_t)session->name,
                                        .count = expect_pack(session->user, session->database)});
}

static void unit_select(struct client *client)
{
    char number[8];
    client->session.database = client_random(client, DATABASES);
    snprintf(number, sizeof number, "%u", client->session.database);
    send_words(client, "SELECT", number, NULL);
    expect_ok(client);
}

/* A key's name holds its database: in any other there is nothing under it. */
static void unit_other_database(struct client *client)
{
    struct session *session = &client->session;
    char key[TEXT_MAX];
    unsigned other = (session->database + 1 + client_random(client, DATABASES - 1)) % DATABASES;
    text_key(key, session->user, client->index, client_generation(client), other,
             slot_names[client_random(client, SLOTS)]);
    send_words(client, "GET", key, NULL);
    expect_text(client, EXPECT_NULL, NULL);
}

/* All clients mark each database by the same length under the same key. Who writes or reads in a wrong one is found by
 * whoever reads next, whether or not it is always the same wrong one. */
static void unit_which_database(struct client *client)
{
    static const char *const marks[DATABASES] = {"1", "22", "333"};
    unsigned database = client->session.database;
    if (client->session.marked[database]) {
        send_words(client, "STRLEN", "life:which", NULL);
        expect_number(client, EXPECT_INTEGER, database + 1);
        return;
    }
    client->session.marked[database] = true;
    send_words(client, "SET", "life:which", marks[database], NULL);
    expect_ok(client);
}

static void unit_auth(struct client *client)
{
    unsigned user = client_random(client, USERS_NAMED);
    send_words(client, "AUTH", user_names[user], user_passwords[user], NULL);
    client->session.user = user;
    expect_ok(client);
}

static void unit_auth_wrong(struct client *client)
{
    send_words(client, "AUTH", user_names[1], "wrong", NULL);
    expect_text(client, EXPECT_ERROR, "WRONGPASS ");
}

/* The default user may use every key; the others only those with their number. */
static void unit_no_permission(struct client *client)
{
    struct session *session = &client->session;
    char key[TEXT_MAX];
    if (session->user == 0) {
        unit_whoami(client);
        return;
    }
    text_key(key, session->user == 1 ? 2 : 1, client->index, client_generation(client), 0, slot_names[0]);
    send_words(client, "GET", key, NULL);
    expect_text(client, EXPECT_ERROR, "NOPERM ");
}

static void unit_hello(struct client *client)
{
    struct session *session = &client->session;
    char identity[TEXT_MAX];
    bool three = client_random(client, 2) == 0;
    /* RESP2 could not tell the messages of a subscription from replies. */
    if (session->subscribed)
        three = true;
    session->resp = three ? 3 : 2;
    if (client_random(client, 2) == 0) {
        unsigned user = client_random(client, USERS_NAMED);
        session->name = next_identity(client, identity);
        send_words(client, "HELLO", three ? "3" : "2", "AUTH", user_names[user], user_passwords[user], "SETNAME",
                   identity, NULL);
        session->user = user;
    } else {
        send_words(client, "HELLO", three ? "3" : "2", NULL);
    }
    expect_number(client, EXPECT_HELLO, session->resp);
}

static void unit_reset(struct client *client)
{
    struct session *session = &client->session;
    send_words(client, "RESET", NULL);
    session->resp = 2;
    session->user = client_home_user(client);
    session->database = 0;
    session->name = 0;
    session->subscribed = false;
    expect_text(client, EXPECT_RESET, NULL);
}

static void unit_reply_skip(struct client *client)
{
    if (client->session.subscribed) {
        unit_echo(client);
        return;
    }
    client->session.said_reply = true;
    send_words(client, "CLIENT", "REPLY", "SKIP", NULL);
    set_send(client);
    unit_echo(client);
}

/* Not while subscribed: whether messages come then differs between versions of Redis. */
static void unit_reply_off(struct client *client)
{
    if (client->session.subscribed) {
        unit_echo(client);
        return;
    }
    client->session.said_reply = true;
    send_words(client, "CLIENT", "REPLY", "OFF", NULL);
    for (uint32_t left = client_random(client, 4); left > 0; left--) {
        any_send(client);
    }
    send_words(client, "CLIENT", "REPLY", "ON", NULL);
    expect_ok(client);
}

/* ---- units: scripts and errors ---- */

static void unit_eval(struct client *client)
{
    char identity[TEXT_MAX];
    uint64_t sequence = next_identity(client, identity);
    send_words(client, "EVAL", "return ARGV[1]", "0", identity, NULL);
    expect_number(client, EXPECT_IDENTITY, sequence);
}

static void unit_eval_error(struct client *client)
{
    char identity[TEXT_MAX];
    uint64_t sequence = next_identity(client, identity);
    send_words(client, "EVAL", "return redis.error_reply('CROSSTALK ' .. ARGV[1])", "0", identity, NULL);
    expect(client,
           (struct expectation){.kind = EXPECT_ERROR_OWN, .number = (int64_t)sequence, .text = "CROSSTALK xt:"});
}

static void unit_unknown(struct client *client)
{
    char identity[TEXT_MAX];
    uint64_t sequence = next_identity(client, identity);
    send_words(client, "CROSSTALK", identity, NULL);
    expect(client, (struct expectation){.kind = EXPECT_ERROR_OWN,
                                        .number = (int64_t)sequence,
                                        .text = "ERR unknown command 'CROSSTALK', with args beginning with: 'xt:"});
}

static void unit_no_script(struct client *client)
{
    send_words(client, "EVALSHA", "0123456789012345678901234567890123456789", "0", NULL);
    expect_text(client, EXPECT_ERROR, "NOSCRIPT ");
}

/* ---- the table ---- */

struct unit {
    void (*send)(struct client *client);
    uint32_t weight;
    uint32_t weight_subscribed; /* while subscribed in RESP2; 0: forbidden then */
};

static const struct unit units[] = {
    {unit_echo, 1500, 0},
    {unit_ping, 800, 1000},
    {unit_set, 1800, 0},
    {unit_get, 2500, 0},
    {unit_mget, 500, 0},
    {unit_increment, 800, 0},
    {unit_whoami, 100, 0},
    {unit_large, 2, 0},
    {unit_multi, 150, 0},
    {unit_discard, 40, 0},
    {unit_abort, 40, 0},
    {unit_watch, 60, 0},
    {unit_watch_shared, 30, 0},
    {unit_list, 60, 0},
    {unit_timeout, 8, 0},
    {unit_publish, 200, 0},
    {unit_subscribe, 10, 30},
    {unit_forbidden, 0, 100},
    {unit_tracking, 5, 0},
    {unit_set_name, 60, 0},
    {unit_get_name, 100, 0},
    {unit_client_id, 3, 0},
    {unit_client_info, 3, 0},
    {unit_select, 100, 0},
    {unit_other_database, 200, 0},
    {unit_which_database, 200, 0},
    {unit_auth, 40, 0},
    {unit_auth_wrong, 10, 0},
    {unit_no_permission, 60, 0},
    {unit_hello, 20, 0},
    {unit_reset, 5, 5},
    {unit_reply_skip, 5, 0},
    {unit_reply_off, 5, 0},
    {unit_eval, 150, 0},
    {unit_eval_error, 60, 0},
    {unit_no_script, 30, 0},
    {unit_unknown, 60, 0},
};

#define UNIT_COUNT (sizeof units / sizeof *units)

/* Whether it makes the client somebody else: behind CLIENT REPLY it is closed for that, where there are rules. */
static bool is_naming(const struct unit *unit)
{
    return unit->send == unit_set_name || unit->send == unit_auth || unit->send == unit_auth_wrong ||
           unit->send == unit_hello || unit->send == unit_reset;
}

static uint32_t unit_weight(const struct unit *unit, const struct session *session)
{
    if (session->said_reply && is_naming(unit))
        return 0;
    return session->subscribed && session->resp == 2 ? unit->weight_subscribed : unit->weight;
}

static void unit_any(struct client *client)
{
    const struct session *session = &client->session;
    uint32_t total = 0;
    for (size_t at = 0; at < UNIT_COUNT; at++)
        total += unit_weight(&units[at], session);
    uint32_t drawn = client_random(client, total);
    size_t at = 0;
    for (; drawn >= unit_weight(&units[at], session); at++)
        drawn -= unit_weight(&units[at], session);
    units[at].send(client);
}

unsigned workload_pipeline(struct client *client, unsigned commands)
{
    uint64_t before = client->figures->requests;
    while (client->figures->requests - before < commands)
        unit_any(client);
    return (unsigned)(client->figures->requests - before);
}

void workload_quit(struct client *client)
{
    send_words(client, "QUIT", NULL);
    expect_ok(client);
}

void workload_final(struct client *client)
{
    if (client->session.subscribed)
        unit_subscribe(client);
    unit_echo(client);
    unit_set(client);
    unit_get(client);
    unit_whoami(client);
    unit_get_name(client);
    unit_multi(client);
    unit_list(client);
    unit_client_info(client);
    unit_echo(client);
}
