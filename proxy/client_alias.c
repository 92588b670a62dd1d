/*
 * Ids of clients in pool = shared. Who asks for its id is told one of Headgate's (directory.h), and no lane is kept for
 * that. Where a request names a client by such an id (CLIENT KILL, UNBLOCK, LIST, TRACKING … REDIRECT), Redis is given
 * the id of the connection that stands for it; if there is none, the client takes one and keeps it from then on. In
 * replies the ids, and addresses, of connections that are a client's alone become the client's.
 */
#include "client_alias.h"

#include "word.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So long a request waits for a client that it names to have a connection: that has to be quiet first. */
#define PATIENCE_US ((int64_t)3 * 1000000)

bool client_has_alias(const struct client *client)
{
    return client->service->directory != NULL && !client->service->settings.session_pool;
}

static int64_t alias_of(const struct client *client)
{
    return directory_id(client->service->directory, client->id);
}

/* ---- which connection stands for the client ---- */

/* The client is about to be told its id: from now on others may name it. False when memory is short. */
static bool enter(struct client *client)
{
    if (client->alias == NULL) {
        client->alias = directory_add(client->service->directory, alias_of(client), client->address_text);
    }
    return client->alias != NULL;
}

bool client_alias_taken(struct client *client, bool asks)
{
    struct lane *lane = client->exclusive;

    if (client->alias == NULL) {
        return true;
    }
    lane->told = &client->alias->connection;
    atomic_store(lane->told, lane->redis_id);
    return lane->redis_id != 0 || !asks || upstream_learn_id(lane);
}

void client_alias_left(struct client *client, struct lane *lane)
{
    if (client->alias != NULL) {
        atomic_store(&client->alias->connection, 0);
    }
    if (lane != NULL) {
        lane->told = NULL;
    }
}

void client_alias_end(struct client *client)
{
    if (client->alias != NULL) {
        directory_remove(client->service->directory, client->alias);
        client->alias = NULL;
    }
}

/* Somebody has named it. */
static void take_wanted_lane(struct client *client)
{
    const struct session_plan plan = {.exclusive = true, .sticky = true, .identity = true};
    bool is_at_rest = client->first == NULL && client->state == CLIENT_OPEN && !client->streaming &&
                      (client->wait == CLIENT_WAIT_NOTHING || client->wait == CLIENT_WAIT_NAME);

    if (client->exclusive == NULL && is_at_rest && !session_take_lane(client, &plan)) {
        (void)client_out_of_memory(client);
        return;
    }
    if (client->exclusive != NULL) {
        client->session.sticky = true;
        atomic_store(&client->alias->is_wanted, false);
    }
}

void client_alias_tick(struct client *client)
{
    if (client->alias != NULL && atomic_load(&client->alias->is_wanted)) {
        take_wanted_lane(client);
    }
    if (client->state == CLIENT_OPEN && client->wait == CLIENT_WAIT_NAME && client->alias_since_us != 0) {
        client->wait = CLIENT_WAIT_NOTHING;
        client_want_flush(client);
    }
}

/* ---- requests ---- */

/* Where a subcommand has ids. */
enum ids { IDS_NOWHERE, IDS_THIRD, IDS_BEHIND_ID, IDS_BEHIND_REDIRECT };

static enum ids ids_of(const struct resp_command *framed, const char *frame)
{
    if (framed->argument_count < 3) {
        return IDS_NOWHERE;
    }
    struct slice subcommand = session_kept_argument(framed, frame, 1);
    return word_is(subcommand, "unblock")                               ? IDS_THIRD
           : word_is(subcommand, "kill") || word_is(subcommand, "list") ? IDS_BEHIND_ID
           : word_is(subcommand, "tracking")                            ? IDS_BEHIND_REDIRECT
                                                                        : IDS_NOWHERE;
}

/* A walk over the arguments that finds ids of Headgate's. */
struct search {
    enum ids ids;
    size_t index;
    bool follows; /* the word that ids stand behind */
};

/* The next argument: the client's id in it, or 0. */
static int64_t next_id(struct search *search, struct slice argument)
{
    int64_t number = 0;
    bool is_number = word_integer(argument, &number);
    bool is_id = is_number && (search->ids == IDS_THIRD ? search->index == 2 : search->follows);

    if (search->index >= 2 && !is_number) {
        search->follows = word_is(argument, search->ids == IDS_BEHIND_REDIRECT ? "redirect" : "id");
    }
    search->index++;
    return is_id && number >= DIRECTORY_FIRST && number < DIRECTORY_END ? number : 0;
}

/* Redis' id in place of that of Headgate's; as it is where there is none. */
static int64_t put_in_place(struct directory *directory, enum ids ids, int64_t id, bool *is_missing)
{
    int64_t connection = directory_find(directory, id, ids == IDS_BEHIND_REDIRECT);

    if (connection == 0 && ids != IDS_THIRD) {
        (void)directory_find(directory, id, true);
        *is_missing = true;
    }
    return connection > 0 ? connection : id;
}

static bool append(struct client_service *service, const char *text, size_t length)
{
    return buffer_append(&service->reactor->buffers, &service->translated, text, length);
}

static bool append_argument(struct client_service *service, struct slice argument)
{
    char head[32];
    int length = snprintf(head, sizeof head, "$%zu\r\n", argument.length);

    return append(service, head, (size_t)length) && append(service, argument.data, argument.length) &&
           append(service, "\r\n", 2);
}

/* Writes the request anew; *is_other: something in it is. False when memory is short. */
static bool translate(struct client_service *service, enum ids ids, struct slice bytes, bool *is_other,
                      bool *is_missing)
{
    struct resp_walk walk = resp_walk_start(bytes);
    struct search search = {.ids = ids};
    struct slice argument;
    char text[32];

    buffer_clear(&service->reactor->buffers, &service->translated);
    bool is_whole = append(service, text, (size_t)snprintf(text, sizeof text, "*%" PRIu32 "\r\n", walk.left));
    while (is_whole && resp_walk_next(&walk, &argument)) {
        int64_t id = next_id(&search, argument);
        int64_t put = id != 0 ? put_in_place(service->directory, ids, id, is_missing) : 0;
        if (put != id) {
            argument = (struct slice){text, (size_t)snprintf(text, sizeof text, "%" PRId64, put)};
            *is_other = true;
        }
        is_whole = append_argument(service, argument);
    }
    return is_whole;
}

bool client_translate_ids(struct client *client, const struct resp_command *framed, const char *frame,
                          struct slice *bytes)
{
    struct client_service *service = client->service;
    enum ids ids = client_has_alias(client) ? ids_of(framed, frame) : IDS_NOWHERE;
    int64_t now = reactor_now(service->reactor);
    bool is_other = false;
    bool is_missing = false;

    if (ids == IDS_NOWHERE || client->session.sent_transaction || client->session.tunnel) {
        return true;
    }
    if (!translate(service, ids, (struct slice){frame, (size_t)framed->size}, &is_other, &is_missing)) {
        buffer_clear(&service->reactor->buffers, &service->translated);
        return client_out_of_memory(client);
    }
    if (client->alias_since_us == 0) {
        client->alias_since_us = now;
    }
    if (is_missing && now - client->alias_since_us < PATIENCE_US) {
        buffer_clear(&service->reactor->buffers, &service->translated);
        return client_wait_for(client, CLIENT_WAIT_NAME);
    }
    client->alias_since_us = 0;
    if (is_other) {
        *bytes = (struct slice){buffer_head(&service->translated), buffer_length(&service->translated)};
    } else {
        buffer_clear(&service->reactor->buffers, &service->translated);
    }
    return true;
}

/* ---- replies ---- */

/* What is written in place of a reply. */
struct rewriting {
    struct client *client;
    struct buffer *made;
    bool is_whole; /* false: memory was short */
    struct directory_place *places;
    size_t place_count;
};

static void put(struct rewriting *rewriting, const char *text, size_t length)
{
    rewriting->is_whole = rewriting->is_whole &&
                          buffer_append(&rewriting->client->service->reactor->buffers, rewriting->made, text, length);
}

static void put_slice(struct rewriting *rewriting, struct slice text)
{
    put(rewriting, text.data, text.length);
}

static void put_number(struct rewriting *rewriting, int64_t number)
{
    char text[32];

    put(rewriting, text, (size_t)snprintf(text, sizeof text, "%" PRId64, number));
}

static int compare_place(const void *key, const void *place)
{
    int64_t connection = *(const int64_t *)key;
    int64_t other = ((const struct directory_place *)place)->connection;

    return connection < other ? -1 : connection > other;
}

/* Whose connection it is alone; NULL: of nobody here. */
static const struct directory_place *owner_of(const struct rewriting *rewriting, int64_t connection)
{
    return rewriting->place_count == 0 ? NULL
                                       : bsearch(&connection, rewriting->places, rewriting->place_count,
                                                 sizeof *rewriting->places, compare_place);
}

static int64_t read_number(struct slice text, size_t *length)
{
    int64_t number = 0;
    size_t at = text.length > 0 && text.data[0] == '-';

    for (; at < text.length && text.data[at] >= '0' && text.data[at] <= '9' && number < INT64_MAX / 16; at++) {
        number = number * 10 + (text.data[at] - '0');
    }
    *length = at;
    return text.length > 0 && text.data[0] == '-' ? -number : number;
}

/* The reply with the number behind mark (of its first place) replaced. id 0: by that of its owner. */
static void replace_number(struct rewriting *rewriting, struct slice reply, const char *mark, int64_t id)
{
    size_t mark_length = strlen(mark);
    const char *found = memmem(reply.data, reply.length, mark, mark_length);
    size_t digits;

    if (found == NULL) {
        put_slice(rewriting, reply);
        return;
    }
    size_t before = (size_t)(found - reply.data) + mark_length;
    struct slice rest = {reply.data + before, reply.length - before};
    int64_t number = read_number(rest, &digits);
    const struct directory_place *owner = id == 0 ? owner_of(rewriting, number) : NULL;
    put(rewriting, reply.data, before);
    put_number(rewriting, id != 0 ? id : owner != NULL ? owner->id : number);
    put(rewriting, rest.data + digits, rest.length - digits);
}

/* What a line of CLIENT LIST, or of CLIENT INFO, says of its client. */
struct truth {
    int64_t id; /* 0: the line is that of a connection of others */
    const char *address;
    const struct client *self; /* who asks, if the line is its own */
};

static bool has_key(struct slice word, const char *key)
{
    return word.length >= strlen(key) && memcmp(word.data, key, strlen(key)) == 0;
}

static const char *text_or_none(const char *text)
{
    return text != NULL ? text : "";
}

static void put_pair(struct rewriting *rewriting, const char *key, const char *value)
{
    put(rewriting, key, strlen(key));
    put(rewriting, value, strlen(value));
}

/* One "key=value" of a line. */
static void put_word(struct rewriting *rewriting, const struct truth *truth, struct slice word)
{
    const struct client *self = truth->self;

    if (truth->id != 0 && has_key(word, "id=")) {
        put(rewriting, "id=", 3);
        put_number(rewriting, truth->id);
    } else if (truth->id != 0 && has_key(word, "addr=")) {
        put_pair(rewriting, "addr=", truth->address);
    } else if (has_key(word, "redir=")) {
        replace_number(rewriting, word, "redir=", 0);
    } else if (self != NULL && has_key(word, "name=")) {
        put_pair(rewriting, "name=", text_or_none(self->name));
    } else if (self != NULL && has_key(word, "lib-name=")) {
        put_pair(rewriting, "lib-name=", text_or_none(self->library_name));
    } else if (self != NULL && has_key(word, "lib-ver=")) {
        put_pair(rewriting, "lib-ver=", text_or_none(self->library_version));
    } else if (self != NULL && has_key(word, "age=")) {
        put(rewriting, "age=", 4);
        put_number(rewriting, (reactor_now(self->service->reactor) - self->connected_us) / 1000000);
    } else {
        put_slice(rewriting, word);
    }
}

static void put_line(struct rewriting *rewriting, struct slice line, const struct client *self)
{
    size_t digits;
    int64_t number = has_key(line, "id=") ? read_number((struct slice){line.data + 3, line.length - 3}, &digits) : 0;
    const struct directory_place *owner = self == NULL ? owner_of(rewriting, number) : NULL;
    struct truth truth = {.self = self};

    if (self != NULL) {
        truth.id = alias_of(self);
        truth.address = self->address_text;
    } else if (owner != NULL) {
        truth.id = owner->id;
        truth.address = owner->address;
    }
    while (line.length > 0) {
        const char *blank = memchr(line.data, ' ', line.length);
        size_t length = blank != NULL ? (size_t)(blank - line.data) : line.length;
        put_word(rewriting, &truth, (struct slice){line.data, length});
        put(rewriting, line.data + length, blank != NULL);
        length += blank != NULL;
        line = (struct slice){line.data + length, line.length - length};
    }
}

static void put_lines(struct rewriting *rewriting, struct slice body, const struct client *self)
{
    while (body.length > 0) {
        const char *end = memchr(body.data, '\n', body.length);
        size_t length = end != NULL ? (size_t)(end - body.data) : body.length;
        put_line(rewriting, (struct slice){body.data, length}, self);
        put(rewriting, body.data + length, end != NULL);
        length += end != NULL;
        body = (struct slice){body.data + length, body.length - length};
    }
}

/* A bulk string, or a verbatim one ("=…\r\ntxt:…"), of lines. */
static void replace_lines(struct rewriting *rewriting, struct slice reply, const struct client *self)
{
    const char *end = memchr(reply.data, '\n', reply.length);
    size_t head = end != NULL ? (size_t)(end - reply.data) + 1 : reply.length;
    size_t kind = reply.data[0] == '=' ? 4 : 0;
    struct buffer lines = {0};
    struct rewriting within = *rewriting;

    if (reply.length < head + kind + 2) {
        put_slice(rewriting, reply);
        return;
    }
    within.made = &lines;
    put(&within, reply.data + head, kind);
    put_lines(&within, (struct slice){reply.data + head + kind, reply.length - head - kind - 2}, self);
    rewriting->is_whole = within.is_whole;
    put(rewriting, reply.data, 1);
    put_number(rewriting, (int64_t)buffer_length(&lines));
    put(rewriting, "\r\n", 2);
    put(rewriting, buffer_head(&lines), buffer_length(&lines));
    put(rewriting, "\r\n", 2);
    buffer_clear(&rewriting->client->service->reactor->buffers, &lines);
}

static void rewrite(struct rewriting *rewriting, const struct observation *observation, struct slice reply)
{
    const struct client *client = rewriting->client;
    char type = reply.data[0];

    if (observation->kind == OBSERVE_ID && type == ':') {
        replace_number(rewriting, reply, ":", alias_of(client));
    } else if (observation->kind == OBSERVE_INFO && (type == '$' || type == '=')) {
        replace_lines(rewriting, reply, client);
    } else if (observation->kind == OBSERVE_LIST && (type == '$' || type == '=')) {
        replace_lines(rewriting, reply, NULL);
    } else if (observation->kind == OBSERVE_REDIRECTION && type == ':') {
        replace_number(rewriting, reply, ":", 0);
    } else if (observation->kind == OBSERVE_REDIRECTION) {
        replace_number(rewriting, reply, "$8\r\nredirect\r\n:", 0);
    } else if (observation->is_hello && (type == '*' || type == '%')) {
        replace_number(rewriting, reply, "$2\r\nid\r\n:", alias_of(client));
    } else {
        put_slice(rewriting, reply);
    }
}

bool client_rewrites(const struct client *client, const struct observation *observation)
{
    return observation != NULL && client_has_alias(client) &&
           (observation->is_hello || observation->kind == OBSERVE_ID || observation->kind == OBSERVE_INFO ||
            observation->kind == OBSERVE_LIST || observation->kind == OBSERVE_REDIRECTION);
}

/* What the reply says of the connection that it came by. */
static int64_t connection_in(const struct observation *observation, struct slice reply)
{
    const char *mark = observation->is_hello ? "$2\r\nid\r\n:" : observation->kind == OBSERVE_ID ? ":" : "id=";
    const char *found = memmem(reply.data, reply.length, mark, strlen(mark));
    size_t digits;

    if (found == NULL) {
        return 0;
    }
    found += strlen(mark);
    return read_number((struct slice){found, reply.length - (size_t)(found - reply.data)}, &digits);
}

/* Whether what came may be the answer to another request: what scripts say can look like it. */
static bool may_be_forged(const struct session *session)
{
    return session->split || session->scripts > 0 || session->unsure || session->was_silent;
}

/* The client is told its id: others may name it by that from here on. False when memory is short. */
static bool introduce(struct client *client, const struct observation *observation, struct lane *lane,
                      struct slice reply)
{
    if (!enter(client)) {
        return false;
    }
    if (lane == client->exclusive && lane != NULL && !may_be_forged(&client->session)) {
        lane->redis_id = connection_in(observation, reply);
        (void)client_alias_taken(client, false);
    }
    return true;
}

bool client_rewrite(struct client *client, const struct observation *observation, const struct resp_reply *reply,
                    struct lane *lane, struct slice text, struct buffer *made)
{
    struct rewriting rewriting = {.client = client, .made = made, .is_whole = true};
    bool names_client = observation->is_hello || observation->kind == OBSERVE_ID || observation->kind == OBSERVE_INFO;
    bool is_queued = reply->type == '+';

    if (resp_reply_is_error(reply) || is_queued || reply->size != text.length) {
        put_slice(&rewriting, text);
        return rewriting.is_whole;
    }
    if (names_client && !introduce(client, observation, lane, text)) {
        return false;
    }
    if (!observation->is_hello && observation->kind != OBSERVE_ID) {
        rewriting.place_count = directory_places(client->service->directory, &rewriting.places);
    }
    rewrite(&rewriting, observation, text);
    free(rewriting.places);
    return rewriting.is_whole;
}
