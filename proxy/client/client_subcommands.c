/*
 * What each subcommand of CLIENT needs of the connection to Redis in pool = shared. What libraries send when they
 * connect must cost no lane, or sharing would be of use to nobody:
 *
 *   SETNAME, GETNAME, SETINFO   answered here, once Redis has shown that the user may use them
 *   MAINT_NOTIFICATIONS         answered here; mostly as by a server that does not know it
 *   what leaves nothing behind  the home lane
 *   what asks about all, or acts upon others   a lane of its own for the command
 *   what tells the id           a lane of its own, for a while if Redis has accepted it (session_id_was_told())
 *   what may leave something    the same, for life: TRACKING and CACHING among them, if Redis accepts it
 *   REPLY                       … and bytes only, as nobody can tell which request has a reply
 */
#include "client/client_cluster_private.h"

#include "resp/word.h"

#include <stdio.h>
#include <string.h>

/* So much of a word Redis shows in an error. */
#define SHOWN 128

/* An error about a word that the client wrote: one line, as Redis sees to it. */
static void answer_about(struct session_route *route, const char *before, struct slice word, const char *behind)
{
    word = word_before_nul(word);
    route->answer = SESSION_ANSWER_HERE;
    snprintf(route->text, sizeof route->text - 2, "%s%.*s%s", before, (int)(word.length > SHOWN ? SHOWN : word.length),
             word.length > 0 ? word.data : "", behind);
    char *letter = route->text;
    for (; *letter != '\0'; letter++) {
        if (*letter == '\r' || *letter == '\n') {
            *letter = ' ';
        }
    }
    memcpy(letter, "\r\n", 3);
}

static void answer_unknown(struct session_route *route, struct slice subcommand)
{
    answer_about(route, "-ERR unknown subcommand '", subcommand, "'. Try CLIENT HELP.");
}

/* ---- what Headgate answers for Redis ---- */

/* Redis allows in a name only what cannot break a line of CLIENT LIST. */
static bool name_is_sound(struct slice name)
{
    for (size_t i = 0; i < name.length; i++) {
        if (name.data[i] < '!' || name.data[i] > '~') {
            return false;
        }
    }
    return true;
}

/* Redis is asked, and what it answers shows whether the user may. text: what the connection is told; NULL for none. */
static bool ask_redis(struct client *client, enum expected_reply_kind kind, enum profile_right right,
                      const struct slice *text, struct session_route *route)
{
    if (!session_expect(client, route, kind)) {
        return false;
    }
    route->expected->right = right;
    if (text != NULL) {
        route->expected->name = strndup(text->data, text->length);
    }
    return text == NULL || route->expected->name != NULL;
}

static bool route_setname(struct client *client, struct slice name, struct session_route *route)
{
    enum session_place place =
        name.length <= CLIENT_NAME_MAX ? session_place_for(client, PROFILE_MAY_SETNAME) : SESSION_PLACE_LANE;

    if (place == SESSION_PLACE_LATER) {
        route->answer = SESSION_LATER;
        return true;
    }
    if (place == SESSION_PLACE_LANE) {
        return ask_redis(client, EXPECT_NAME, PROFILE_MAY_SETNAME, &name, route);
    }
    if (!name_is_sound(name)) {
        return session_say(route, SESSION_ANSWER_HERE,
                           "-ERR Client names cannot contain spaces, newlines or special characters.\r\n");
    }
    return session_say(route, SESSION_ANSWER_HERE, "+OK\r\n") && client_rename(client, name);
}

static bool route_getname(struct client *client, struct session_route *route)
{
    enum session_place place = session_place_for(client, PROFILE_MAY_GETNAME);

    if (place == SESSION_PLACE_LATER) {
        route->answer = SESSION_LATER;
    } else if (place == SESSION_PLACE_LANE) {
        return ask_redis(client, EXPECT_RIGHT, PROFILE_MAY_GETNAME, NULL, route);
    } else if (client->name == NULL) {
        return session_say(route, SESSION_ANSWER_HERE, client->profile->resp == 3 ? "_\r\n" : "$-1\r\n");
    } else {
        route->answer = SESSION_ANSWER_HERE;
        snprintf(route->text, sizeof route->text, "$%zu\r\n%s\r\n", strlen(client->name), client->name);
    }
    return true;
}

#define VERSION(major, minor) ((uint32_t)(major) << 16 | (minor) << 8)
/* CLIENT SETINFO came with it. */
#define VERSION_WITH_SETINFO VERSION(7, 2)
/* Until then there was one text for unknown subcommands and for a wrong number of arguments. */
#define VERSION_WITH_SUBCOMMANDS VERSION(7, 0)

static bool ask_redis_to_set(struct client *client, bool is_name, struct slice value, struct session_route *route)
{
    /* Nobody else gets a lane that has heard it: there is no way to take it back. */
    route->dirty = true;
    if (!ask_redis(client, EXPECT_LIBRARY, PROFILE_MAY_SETINFO, &value, route)) {
        return false;
    }
    route->expected->is_library_name = is_name;
    return true;
}

static bool set_library(struct client *client, bool is_name, struct slice value, struct session_route *route)
{
    if (!name_is_sound(value)) {
        return session_say(route, SESSION_ANSWER_HERE,
                           is_name ? "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n"
                                   : "-ERR lib-ver cannot contain spaces, newlines or special characters.\r\n");
    }
    return session_say(route, SESSION_ANSWER_HERE, "+OK\r\n") &&
           client_keep_text(client, is_name ? &client->library_name : &client->library_version, value);
}

static bool route_setinfo(struct client *client, const struct resp_command *framed, const char *frame,
                          struct session_route *route)
{
    uint32_t version = server_info_redis_version(client->service->server_info);
    struct slice attribute = session_kept_argument(framed, frame, 2);
    struct slice value = session_kept_argument(framed, frame, 3);
    bool is_name = word_is(attribute, "lib-name");

    if (version >= VERSION_WITH_SUBCOMMANDS && version < VERSION_WITH_SETINFO && client->exclusive == NULL &&
        !client->service->settings.session_pool) {
        answer_unknown(route, session_kept_argument(framed, frame, 1));
        return true;
    }
    if (!is_name && !word_is(attribute, "lib-ver")) {
        return session_expect(client, route, EXPECT_STATE);
    }
    switch (session_place_for(client, PROFILE_MAY_SETINFO)) {
    case SESSION_PLACE_LATER:
        return session_say(route, SESSION_LATER, "");
    case SESSION_PLACE_LANE:
        return ask_redis_to_set(client, is_name, value, route);
    case SESSION_PLACE_HERE:
        return set_library(client, is_name, value, route);
    }
    return true;
}

/*
 * Libraries ask for it on each connection of RESP3. It tells them by pushes where to go when a server is about to
 * leave. The server's would send them past Headgate; so it is never asked, and tells of Headgate's own end or is
 * unknown here, and libraries go on without. Redis finds no such subcommand before it looks at rights. An old server,
 * which has other words for that, is left to say so.
 */
static bool route_maintenance(struct client *client, const struct resp_command *framed, const char *frame,
                              struct session_route *route)
{
    struct slice subcommand = session_kept_argument(framed, frame, 1);
    uint32_t version = server_info_redis_version(client->service->server_info);

    if (client->service->settings.maintenance_notifications != CONF_MAINTENANCE_NO) {
        if (client->sent_runs > 0) {
            /* What they do to the connection is known by then. */
            return session_say(route, SESSION_LATER, "");
        }
        if (client_take_maintenance(client, framed, frame)) {
            return session_say(route, SESSION_ANSWER_HERE, "+OK\r\n");
        }
    }
    if (version != 0 && version < VERSION_WITH_SUBCOMMANDS) {
        return session_expect(client, route, EXPECT_STATE);
    }
    answer_unknown(route, subcommand);
    if (client->exclusive != NULL) {
        /* There may be a transaction that has to fail, or a reply to skip. */
        route->answer = SESSION_REFUSE;
    }
    return true;
}

/* ---- what Redis answers ---- */

/* ON alone is how each connection begins. */
static void route_reply(struct client *client, struct slice mode, struct session_route *route)
{
    if (word_is(mode, "on")) {
        return;
    }
    if (client->service->cluster != NULL) {
        (void)session_say(route, SESSION_REFUSE,
                          "-ERR headgate: CLIENT REPLY OFF and SKIP are refused before a Redis Cluster: they would "
                          "hold at one node only\r\n");
    } else {
        route->exclusive = true;
        route->passthrough = true;
        route->silences = true;
    }
}

static bool route_pause(struct client *client, const struct resp_command *framed, const char *frame,
                        struct session_route *route)
{
    if (!session_expect(client, route, EXPECT_PAUSE)) {
        return false;
    }
    if (framed->argument_count > 2) {
        (void)word_integer(session_kept_argument(framed, frame, 2), &route->expected->pause_ms);
    }
    return true;
}

/* Whether it may be its own connection that is killed. In the old form, of one address, SKIPME is no. */
static bool may_kill_itself(const struct resp_command *framed, const char *frame)
{
    struct resp_walk walk = resp_walk_start((struct slice){frame, (size_t)framed->size});
    struct slice argument;

    while (resp_walk_next(&walk, &argument)) {
        if (word_is(argument, "skipme") && (!resp_walk_next(&walk, &argument) || !word_is(argument, "yes"))) {
            return true;
        }
    }
    return framed->argument_count == 3;
}

/* What may leave something on the connection, for as long as it lasts. */
static bool route_state(struct client *client, bool has_unclear_errors, struct session_route *route)
{
    route->identity = true;
    if (!session_expect(client, route, EXPECT_STATE)) {
        return false;
    }
    route->expected->has_unclear_errors = has_unclear_errors;
    return true;
}

/* ---- all together ---- */

/* How a subcommand is dealt with that Redis answers. */
enum treatment {
    TREAT_HOME,   /* it leaves nothing behind */
    TREAT_ALONE,  /* the same, but for the length of its reply, or the lanes that it kills */
    TREAT_KEEPS,  /* something, if it succeeds */
    TREAT_UNKNOWN /* nobody knows what, unless Redis does not know it either */
};

struct subcommand {
    const char *name;
    enum treatment treatment;
};

static const struct subcommand subcommands[] = {
    {"caching", TREAT_KEEPS},       {"capa", TREAT_KEEPS}, {"getredir", TREAT_HOME},  {"help", TREAT_HOME},
    {"import-source", TREAT_KEEPS}, {"kill", TREAT_ALONE}, {"list", TREAT_ALONE},     {"no-evict", TREAT_KEEPS},
    {"no-touch", TREAT_KEEPS},      {"reply", TREAT_HOME}, {"tracking", TREAT_KEEPS}, {"trackinginfo", TREAT_HOME},
    {"unblock", TREAT_HOME},
};

static enum treatment treatment_of(struct slice name)
{
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++) {
        if (word_is(name, subcommands[i].name)) {
            return subcommands[i].treatment;
        }
    }
    return TREAT_UNKNOWN;
}

static bool route_by_treatment(struct client *client, const struct resp_command *framed, const char *frame,
                               struct session_route *route)
{
    struct slice subcommand = session_kept_argument(framed, frame, 1);
    enum treatment treatment = treatment_of(subcommand);

    switch (treatment) {
    case TREAT_HOME:
        return true;
    case TREAT_ALONE:
        route->exclusive = true;
        route->identity = word_is(subcommand, "list");
        route->pinned = route->pinned || (word_is(subcommand, "kill") && may_kill_itself(framed, frame));
        return true;
    case TREAT_KEEPS:
        return route_state(client, false, route);
    case TREAT_UNKNOWN:
        return route_state(client, true, route);
    }
    return true;
}

bool session_route_client(struct client *client, const struct resp_command *framed, const char *frame,
                          struct session_route *route)
{
    uint32_t count = framed->argument_count;

    if (count < 2) {
        return true;
    }
    struct slice subcommand = session_kept_argument(framed, frame, 1);
    if (word_is(subcommand, "reply") && count == 3) {
        route_reply(client, session_kept_argument(framed, frame, 2), route);
        return true;
    }
    /* Under another name (rename-command) the text would have that. */
    if (word_is(subcommand, "maint_notifications") && !route->pinned) {
        return route_maintenance(client, framed, frame, route);
    }
    if (client->session.sent_transaction) {
        route->exclusive = true;
        route->pinned = true;
        return true;
    }
    if (word_is(subcommand, "setname") && count == 3) {
        return route_setname(client, session_kept_argument(framed, frame, 2), route);
    }
    if (word_is(subcommand, "getname") && count == 2) {
        return route_getname(client, route);
    }
    if (word_is(subcommand, "setinfo") && count == 4) {
        return route_setinfo(client, framed, frame, route);
    }
    if (word_is(subcommand, "pause") || word_is(subcommand, "unpause")) {
        return route_pause(client, framed, frame, route);
    }
    if (word_is(subcommand, "id") || word_is(subcommand, "info")) {
        route->identity = true;
        return session_expect(client, route, EXPECT_ID);
    }
    return route_by_treatment(client, framed, frame, route);
}
