/*
 * Clients that want to be told when they are to go elsewhere: CLIENT MAINT_NOTIFICATIONS, which libraries send on each
 * connection of RESP3. While the process drains, and another one has taken the addresses over, they hear
 *
 *   >4 MOVING NUMBER SECONDS ADDRESS
 *
 * behind the replies to what is under way. They open another connection, go over to it between two requests, and close
 * this one; nothing of theirs is lost, as might be if we were the first to close. So they have those seconds for it.
 * Without an address (a null) they go back to where they came from, and begin with that when half of the time is over.
 *
 * After an upgrade they hear it already when the new process has proven itself, and this one does not drain as yet.
 * Then there is no hurry: some are told at each tick, and who has a transaction, watched keys or subscriptions, when
 * these are over. The drain tells who is left of it once more.
 *
 * Nobody is told if nobody listens in our stead: they would be gone from here before anybody is there for them.
 */
#include "client/client_cluster_private.h"

#include "resp/word.h"

#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* The most that clients are given. */
#define MOST_S 10
/* Of all clients, so many are told at a tick while there is time, and a part of them more. */
#define OFFERS_LEAST 8
#define OFFERS_PART 32
/* The longest name that is told, and that with its port. */
#define NAME_MOST 253
#define ENDPOINT_MAX (NAME_MOST + 8)

/* ---- where to ---- */

/* What a certificate may be for. It is the client's own word, and goes to nobody else. */
static bool is_name(const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '.' && name[i] != '-' && name[i] != '_') {
            return false;
        }
    }
    return length > 0 && length <= NAME_MOST;
}

/* IPv4 only, as libraries divide the text at the first colon. False: it has none such. */
static bool write_own_address(const struct sockaddr_storage *own, char *text, size_t size)
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)own;
    const uint8_t *bytes = (const uint8_t *)&((const struct sockaddr_in *)own)->sin_addr;

    if (own->ss_family == AF_INET6) {
        bytes = in6->sin6_addr.s6_addr + 12;
    }
    snprintf(text, size, "%u.%u.%u.%u", bytes[0], bytes[1], bytes[2], bytes[3]);
    return own->ss_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
}

/* As the client knows us: by the name that it has asked for with TLS, as the certificate is looked at again; else by
 * the address at which it came. False: nobody here knows that. */
static bool write_endpoint(const struct client *client, char *text, size_t size)
{
    const struct tls *tls = connection_tls(&client->connection);
    const char *name = tls != NULL ? tls_server_name(tls) : NULL;
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;
    char host[NAME_MOST + 1];

    if (client->is_proxied || getsockname(client->connection.fd, (struct sockaddr *)&own, &length) != 0 ||
        (own.ss_family != AF_INET && own.ss_family != AF_INET6)) {
        return false;
    }
    if (name != NULL && is_name(name)) {
        snprintf(host, sizeof host, "%s", name);
    } else if (!write_own_address(&own, host, sizeof host)) {
        return false;
    }
    /* The port lies at the same place in both. */
    snprintf(text, size, "%s:%u", host, (unsigned)ntohs(((const struct sockaddr_in *)&own)->sin_port));
    return true;
}

/* ---- who asks ---- */

/* What was asked for, by the arguments behind the subcommand. False: that is nothing known. */
static bool read_wish(const struct resp_command *framed, const char *frame, enum client_moving *wish)
{
    static const char *const types[] = {"internal-ip", "internal-fqdn", "external-ip", "external-fqdn"};
    struct resp_walk walk = resp_walk_start((struct slice){frame, (size_t)framed->size});
    struct slice words[5] = {0};
    bool is_known = false;

    for (size_t i = 0; i < 5 && resp_walk_next(&walk, &words[i]); i++) {
    }
    *wish = CLIENT_MOVING_ADDRESS;
    if (framed->argument_count == 3 && word_is(words[2], "off")) {
        *wish = CLIENT_MOVING_UNASKED;
        return true;
    }
    if (!word_is(words[2], "on") || framed->argument_count == 3) {
        return framed->argument_count == 3 && word_is(words[2], "on");
    }
    if (framed->argument_count != 5 || !word_is(words[3], "moving-endpoint-type")) {
        return false;
    }
    if (word_is(words[4], "none")) {
        *wish = CLIENT_MOVING_BACK;
        return true;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        is_known = is_known || word_is(words[4], types[i]);
    }
    return is_known;
}

/* Whether a push has a place behind the replies under way. */
static bool may_be_pushed_to(const struct client *client)
{
    const struct session *session = &client->session;

    return client->state == CLIENT_OPEN && client->profile->resp == 3 && !session->passthrough && !session->unsure;
}

bool client_take_maintenance(struct client *client, const struct resp_command *framed, const char *frame)
{
    char endpoint[ENDPOINT_MAX];
    enum client_moving wish;

    if (!may_be_pushed_to(client) || client->session.sent_transaction || client->session.deferred ||
        client->profile->needs_password || !read_wish(framed, frame, &wish)) {
        return false;
    }
    if (wish == CLIENT_MOVING_ADDRESS &&
        (client->service->settings.maintenance_notifications != CONF_MAINTENANCE_ADDRESS ||
         !write_endpoint(client, endpoint, sizeof endpoint))) {
        return false;
    }
    client->moving = wish;
    return true;
}

/* ---- telling them ---- */

/* How long clients are given; 0: there is no time for that. A quarter of drain_timeout is for those that do not go. As
 * long as the process does not drain they have all the time that they want. */
static int64_t seconds_to_move(const struct client_service *service)
{
    int64_t seconds = service->settings.drain_timeout * 3 / 4 / 1000;

    return service->draining && seconds < MOST_S ? seconds : MOST_S;
}

/* False: it cannot be told, or was closed for want of memory. */
static bool tell(struct client *client, int64_t seconds)
{
    char endpoint[ENDPOINT_MAX], text[ENDPOINT_MAX + 96];
    bool goes_back = client->moving == CLIENT_MOVING_BACK;

    if (!goes_back && !write_endpoint(client, endpoint, sizeof endpoint)) {
        return false;
    }
    int length = snprintf(text, sizeof text, ">4\r\n$6\r\nMOVING\r\n:%llu\r\n:%lld\r\n",
                          (unsigned long long)client->service->move, (long long)seconds);
    length += goes_back
                  ? snprintf(text + length, sizeof text - (size_t)length, "_\r\n")
                  : snprintf(text + length, sizeof text - (size_t)length, "$%zu\r\n%s\r\n", strlen(endpoint), endpoint);
    stats_add(client->service->reactor->stats, STATS_CLIENTS_TOLD_TO_MOVE, 1);
    if (!client_push(client, text, (size_t)length)) {
        client_out_of_memory(client);
        return false;
    }
    return true;
}

/* False: it is not to be told. */
static bool tell_once(struct client *client, int64_t seconds, int64_t now_us)
{
    const struct client_service *service = client->service;

    if (client->moving == CLIENT_MOVING_UNASKED || service->move == 0 || seconds == 0 || client->input_ended ||
        client->deaf) {
        return false;
    }
    if (client->told_move != service->move) {
        if (!may_be_pushed_to(client) || !tell(client, seconds)) {
            return false;
        }
        client->told_us = now_us;
        client->told_move = service->move;
    }
    return true;
}

bool client_may_move(struct client *client, int64_t now_us)
{
    int64_t seconds = seconds_to_move(client->service);

    return tell_once(client, seconds, now_us) && now_us - client->told_us < seconds * 1000000;
}

/* What a client would lose with its connection: a transaction, keys that are watched, messages of channels. */
static bool is_tied(const struct client *client)
{
    const struct session *session = &client->session;

    return session->sent_transaction || session->known_transaction || session->deferred || session->watching ||
           session->channels + session->patterns + session->shard_channels > 0 || client_is_subscriber(client);
}

void client_offer_move(struct client *client, int64_t now_us)
{
    struct client_service *service = client->service;
    bool is_due = client->moving != CLIENT_MOVING_UNASKED && client->told_move != service->move;

    if (is_due && service->offers_left > 0 && !is_tied(client) && tell_once(client, seconds_to_move(service), now_us)) {
        service->offers_left--;
    }
}

uint32_t client_offers_at_once(const struct client_service *service)
{
    return OFFERS_LEAST + (uint32_t)(service->count / OFFERS_PART);
}
