#include "crosstalk_send.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WORDS_MAX 16

const char *const user_names[USERS] = {"default", "crosstalk1", "crosstalk2", "by-certificate"};
const char *const user_passwords[USERS_NAMED] = {"any", "secret1", "secret2"};

const char *const slot_names[SLOTS] = {"a", "b", "c", "d"};

void append_length(struct client *client, char type, size_t length)
{
    char line[32];
    int size = snprintf(line, sizeof line, "%c%zu\r\n", type, length);
    buffer_append(&client->out, line, (size_t)size);
}

void append_bulk(struct client *client, const char *data, size_t length)
{
    append_length(client, '$', length);
    buffer_append(&client->out, data, length);
    buffer_append(&client->out, "\r\n", 2);
}

/* Appends a command; the words are strings, ended by NULL. */
void send_words(struct client *client, ...)
{
    const char *words[WORDS_MAX];
    size_t count = 0;
    va_list list;
    va_start(list, client);
    for (const char *word = va_arg(list, const char *); word != NULL; word = va_arg(list, const char *))
        words[count++] = word;
    va_end(list);
    append_length(client, '*', count);
    for (size_t at = 0; at < count; at++)
        append_bulk(client, words[at], strlen(words[at]));
    client->figures->requests++;
}

void expect(struct client *client, struct expectation expectation)
{
    expectation.resp = (uint8_t)client->session.resp;
    expectation.sent_us = now_us();
    expect_push(&client->expected, expectation);
}

void expect_text(struct client *client, enum expect_kind kind, const char *text)
{
    expect(client, (struct expectation){.kind = (uint8_t)kind, .text = text});
}

void expect_number(struct client *client, enum expect_kind kind, uint64_t number)
{
    expect(client, (struct expectation){.kind = (uint8_t)kind, .number = (int64_t)number});
}

void expect_range(struct client *client, uint32_t low, uint32_t high)
{
    expect(client, (struct expectation){.kind = EXPECT_RANGE, .number = low, .count = high});
}

void expect_array(struct client *client, uint32_t count)
{
    expect(client, (struct expectation){.kind = EXPECT_ARRAY, .count = count});
}

void expect_ok(struct client *client)
{
    expect_text(client, EXPECT_STATUS, "OK");
}

uint64_t next_sequence(struct client *client)
{
    return ++client->sequence;
}

uint64_t next_identity(struct client *client, char *identity)
{
    uint64_t sequence = next_sequence(client);
    text_identity(identity, client->index, sequence);
    return sequence;
}

/* A key of the present user and generation in the present database. */
void own_key(struct client *client, char *key, const char *name)
{
    text_key(key, client->session.user, client->index, client_generation(client), client->session.database, name);
}

uint64_t *own_slot(struct client *client, unsigned slot)
{
    struct session *session = &client->session;
    return &session->slots[session->user][session->database][slot];
}

/* ---- a command that can also stand in a transaction: what it sends, and what it is to answer ---- */

struct expectation echo_send(struct client *client)
{
    char identity[TEXT_MAX];
    uint64_t sequence = next_identity(client, identity);
    send_words(client, "ECHO", identity, NULL);
    return (struct expectation){.kind = EXPECT_IDENTITY, .number = (int64_t)sequence};
}

struct expectation set_slot_send(struct client *client, unsigned slot)
{
    char key[TEXT_MAX];
    char value[TEXT_MAX];
    uint64_t sequence = next_sequence(client);
    own_key(client, key, slot_names[slot]);
    text_value(value, client->index, sequence);
    send_words(client, "SET", key, value, NULL);
    *own_slot(client, slot) = sequence;
    return (struct expectation){.kind = EXPECT_STATUS, .text = "OK"};
}

struct expectation set_send(struct client *client)
{
    return set_slot_send(client, client_random(client, SLOTS));
}

/* What an earlier generation left under a key is unknown: then it is written first, in place of being read. */
struct expectation get_send(struct client *client)
{
    char key[TEXT_MAX];
    unsigned slot = client_random(client, SLOTS);
    uint64_t sequence = *own_slot(client, slot);
    if (sequence == 0)
        return set_slot_send(client, slot);
    own_key(client, key, slot_names[slot]);
    send_words(client, "GET", key, NULL);
    return (struct expectation){.kind = EXPECT_VALUE, .number = (int64_t)sequence};
}

struct expectation increment_send(struct client *client)
{
    struct session *session = &client->session;
    char key[TEXT_MAX];
    int64_t *counter = &session->counters[session->user][session->database];
    own_key(client, key, "counter");
    if (*counter == 0) {
        char value[TEXT_MAX];
        *counter = 1 + (int64_t)client->index * 1000000;
        snprintf(value, sizeof value, "%" PRId64, *counter);
        send_words(client, "SET", key, value, NULL);
        return (struct expectation){.kind = EXPECT_STATUS, .text = "OK"};
    }
    send_words(client, "INCR", key, NULL);
    return (struct expectation){.kind = EXPECT_INTEGER, .number = ++*counter};
}

struct expectation whoami_send(struct client *client)
{
    send_words(client, "ACL", "WHOAMI", NULL);
    return (struct expectation){.kind = EXPECT_TEXT, .text = user_names[client->session.user]};
}

typedef struct expectation sender(struct client *client);
static sender *const senders[] = {echo_send, set_send, get_send, increment_send, whoami_send};

struct expectation any_send(struct client *client)
{
    return senders[client_random(client, sizeof senders / sizeof *senders)](client);
}
