#include "crosstalk_units.h"

#include "crosstalk_send.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LARGE_MIN ((uint32_t)16 * 1024)
#define LARGE_MAX ((uint32_t)1024 * 1024)
#define QUEUED_MAX 6

/* ---- units: plain commands ---- */

void unit_echo(struct client *client)
{
    expect(client, echo_send(client));
}

void unit_set(struct client *client)
{
    expect(client, set_send(client));
}

void unit_get(struct client *client)
{
    expect(client, get_send(client));
}

void unit_increment(struct client *client)
{
    expect(client, increment_send(client));
}

void unit_whoami(struct client *client)
{
    expect(client, whoami_send(client));
}

void unit_inline(struct client *client)
{
    char identity[TEXT_MAX];
    char line[TEXT_MAX * 2];
    uint64_t sequence = next_identity(client, identity);
    int length = snprintf(line, sizeof line, "ECHO \"%s\"\r\n", identity);
    buffer_append(&client->out, line, (size_t)length);
    client->figures->requests++;
    expect_number(client, EXPECT_IDENTITY, sequence);
}

void unit_ping(struct client *client)
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

/* Database 0 only, so that there is one counter, whoever the user is. */
void unit_lifetime(struct client *client)
{
    char key[TEXT_MAX];
    if (client->session.database != 0) {
        unit_echo(client);
        return;
    }
    snprintf(key, sizeof key, "life:%" PRIu32, client->index);
    send_words(client, "INCR", key, NULL);
    expect(client, (struct expectation){.kind = EXPECT_LIFETIME, .count = (uint32_t)atomic_load(&client->run->epoch)});
}

void unit_mget(struct client *client)
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

void unit_large(struct client *client)
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

void unit_multi(struct client *client)
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

void unit_discard(struct client *client)
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

void unit_abort(struct client *client)
{
    send_words(client, "MULTI", NULL);
    expect_ok(client);
    unit_unknown(client);
    echo_send(client);
    expect_text(client, EXPECT_STATUS, "QUEUED");
    send_words(client, "EXEC", NULL);
    expect_text(client, EXPECT_ERROR, "EXECABORT ");
}

void unit_watch(struct client *client)
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
void unit_watch_shared(struct client *client)
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

void unit_list(struct client *client)
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

void unit_timeout(struct client *client)
{
    char key[TEXT_MAX];
    own_key(client, key, "nothing");
    send_words(client, "BLPOP", key, client_random(client, 2) == 0 ? "0.01" : "0.03", NULL);
    expect_text(client, EXPECT_NULL_ARRAY, NULL);
}

/* Mailboxes are in database 0. */
void unit_mailbox(struct client *client)
{
    char key[TEXT_MAX];
    if (client->session.database != 0) {
        unit_echo(client);
        return;
    }
    text_mailbox(key, client->index, client_generation(client));
    send_words(client, "BLPOP", key, "0.02", NULL);
    expect_number(client, EXPECT_MAILBOX, client_generation(client));
}

/* ---- units: messages to others ---- */

static uint32_t message_write(struct client *client, char *text, uint64_t *numbers, uint32_t *to_generation)
{
    uint32_t neighbour = client_random(client, NEIGHBOURS);
    uint32_t to = (client->index + 1 + neighbour) % client->run->options.clients;
    *to_generation = client_generation(&client->run->clients[to]);
    text_message(text, &(struct message){to, client->index, client_generation(client), ++numbers[neighbour]});
    return to;
}

void unit_mail(struct client *client)
{
    char key[TEXT_MAX];
    char message[TEXT_MAX];
    uint32_t generation;
    if (client->session.database != 0) {
        unit_echo(client);
        return;
    }
    uint32_t to = message_write(client, message, client->mailed, &generation);
    text_mailbox(key, to, generation);
    send_words(client, "RPUSH", key, message, NULL);
    expect_range(client, 1, UINT32_MAX);
    /* The other may have gone to another generation. */
    send_words(client, "EXPIRE", key, "300", NULL);
    expect_range(client, 0, 1);
}

void unit_publish(struct client *client)
{
    char channel[TEXT_MAX];
    char message[TEXT_MAX];
    uint32_t generation;
    uint32_t to = message_write(client, message, client->published, &generation);
    text_channel(channel, to, generation);
    send_words(client, "PUBLISH", channel, message, NULL);
    expect_range(client, 0, 1);
}

void unit_subscribe(struct client *client)
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
void unit_forbidden(struct client *client)
{
    char key[TEXT_MAX];
    own_key(client, key, slot_names[0]);
    send_words(client, "GET", key, NULL);
    expect_text(client, EXPECT_ERROR, "ERR Can't execute 'get': only (P|S)SUBSCRIBE");
}

void unit_tracking(struct client *client)
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
