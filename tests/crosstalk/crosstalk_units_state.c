#include "crosstalk_units.h"

#include "crosstalk_send.h"

#include <stdio.h>

/* ---- units: the state of the connection ---- */

void unit_set_name(struct client *client)
{
    char identity[TEXT_MAX];
    client->session.name = next_identity(client, identity);
    send_words(client, "CLIENT", "SETNAME", identity, NULL);
    expect_ok(client);
}

void unit_get_name(struct client *client)
{
    send_words(client, "CLIENT", "GETNAME", NULL);
    if (client->session.name == 0)
        expect_text(client, EXPECT_NULL, NULL);
    else
        expect_number(client, EXPECT_IDENTITY, client->session.name);
}

void unit_client_id(struct client *client)
{
    send_words(client, "CLIENT", "ID", NULL);
    expect_text(client, EXPECT_CLIENT_ID, NULL);
}

void unit_client_info(struct client *client)
{
    struct session *session = &client->session;
    send_words(client, "CLIENT", "INFO", NULL);
    expect(client, (struct expectation){.kind = EXPECT_CLIENT_INFO,
                                        .number = (int64_t)session->name,
                                        .count = expect_pack(session->user, session->database)});
}

void unit_select(struct client *client)
{
    char number[8];
    client->session.database = client_random(client, DATABASES);
    snprintf(number, sizeof number, "%u", client->session.database);
    send_words(client, "SELECT", number, NULL);
    expect_ok(client);
}

/* A key's name holds its database: in any other there is nothing under it. */
void unit_other_database(struct client *client)
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
void unit_which_database(struct client *client)
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

void unit_auth(struct client *client)
{
    unsigned user = client_random(client, USERS_NAMED);
    send_words(client, "AUTH", user_names[user], user_passwords[user], NULL);
    client->session.user = user;
    expect_ok(client);
}

void unit_auth_wrong(struct client *client)
{
    send_words(client, "AUTH", user_names[1], "wrong", NULL);
    expect_text(client, EXPECT_ERROR, "WRONGPASS ");
}

/* The default user may use every key; the others only those with their number. */
void unit_no_permission(struct client *client)
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

void unit_hello(struct client *client)
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

void unit_reset(struct client *client)
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

void unit_reply_skip(struct client *client)
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
void unit_reply_off(struct client *client)
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

void unit_wait(struct client *client)
{
    send_words(client, "WAIT", "0", "0", NULL);
    expect_number(client, EXPECT_INTEGER, 0);
}

/* ---- units: scripts and errors ---- */

void unit_eval(struct client *client)
{
    char identity[TEXT_MAX];
    uint64_t sequence = next_identity(client, identity);
    send_words(client, "EVAL", "return ARGV[1]", "0", identity, NULL);
    expect_number(client, EXPECT_IDENTITY, sequence);
}

void unit_eval_error(struct client *client)
{
    char identity[TEXT_MAX];
    uint64_t sequence = next_identity(client, identity);
    send_words(client, "EVAL", "return redis.error_reply('CROSSTALK ' .. ARGV[1])", "0", identity, NULL);
    expect(client,
           (struct expectation){.kind = EXPECT_ERROR_OWN, .number = (int64_t)sequence, .text = "CROSSTALK xt:"});
}

void unit_no_script(struct client *client)
{
    send_words(client, "EVALSHA", "0123456789012345678901234567890123456789", "0", NULL);
    expect_text(client, EXPECT_ERROR, "NOSCRIPT ");
}

void unit_arity(struct client *client)
{
    send_words(client, "GET", NULL);
    expect_text(client, EXPECT_ERROR, "ERR wrong number of arguments for 'get' command");
}

void unit_wrong_type(struct client *client)
{
    char key[TEXT_MAX];
    if (*own_slot(client, 1) == 0)
        expect(client, set_slot_send(client, 1));
    own_key(client, key, slot_names[1]);
    send_words(client, "LPUSH", key, "x", NULL);
    expect_text(client, EXPECT_ERROR_STORED, "WRONGTYPE ");
}

void unit_unknown(struct client *client)
{
    char identity[TEXT_MAX];
    uint64_t sequence = next_identity(client, identity);
    send_words(client, "CROSSTALK", identity, NULL);
    expect(client, (struct expectation){.kind = EXPECT_ERROR_OWN,
                                        .number = (int64_t)sequence,
                                        .text = "ERR unknown command 'CROSSTALK', with args beginning with: 'xt:"});
}
