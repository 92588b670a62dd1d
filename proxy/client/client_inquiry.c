/* What a request with ids names, and how replies that have ids are written anew: see client_ids.c. */
#include "client/client_inquiry.h"

#include "resp/word.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what a request names ---- */

static void note_id(struct client_inquiry *inquiry, struct slice frame, struct slice argument)
{
    const char *begin = argument.data - 2;

    while (*begin != '$') {
        begin--;
    }
    inquiry->named_at = (size_t)(begin - frame.data);
    inquiry->named_end = (size_t)(argument.data - frame.data) + argument.length + 2;
    (void)word_integer(argument, &inquiry->named);
}

static bool is_id(struct slice argument)
{
    int64_t number;

    return word_integer(argument, &number) && directory_has_range(number);
}

/* UNBLOCK id [TIMEOUT | ERROR] */
static bool read_unblock(struct client_inquiry *inquiry, struct slice frame, struct resp_walk walk)
{
    struct slice argument;

    if (!resp_walk_next(&walk, &argument) || !is_id(argument)) {
        return false;
    }
    note_id(inquiry, frame, argument);
    return true;
}

/* KILL {filter value} …, one of them ID. Several ids (newer servers take them) are left to Redis. */
static bool read_kill(struct client_inquiry *inquiry, struct slice frame, struct resp_walk walk)
{
    struct slice filter, value;
    int ids = 0;

    inquiry->names_only = true;
    while (resp_walk_next(&walk, &filter) && resp_walk_next(&walk, &value)) {
        if (word_is(filter, "id")) {
            ids++;
            if (!is_id(value)) {
                return false;
            }
            note_id(inquiry, frame, value);
        } else {
            inquiry->names_only = inquiry->names_only && word_is(filter, "skipme");
        }
    }
    return ids == 1;
}

/* TRACKING ON | OFF … REDIRECT id … */
static bool read_tracking(struct client_inquiry *inquiry, struct slice frame, struct resp_walk walk)
{
    struct slice option, value;
    int ids = 0;

    (void)resp_walk_next(&walk, &option);
    while (resp_walk_next(&walk, &option)) {
        bool redirects = word_is(option, "redirect");
        if (!redirects && !word_is(option, "prefix")) {
            continue;
        }
        if (!resp_walk_next(&walk, &value) || (redirects && !is_id(value))) {
            return false;
        }
        if (redirects) {
            ids++;
            note_id(inquiry, frame, value);
        }
    }
    return ids == 1;
}

bool client_inquiry_read(const struct client *client, struct client_inquiry *inquiry, const struct resp_command *framed,
                         struct slice frame)
{
    static const struct {
        const char *name;
        enum inquiry_kind kind;
        uint32_t least, most;
        bool (*read)(struct client_inquiry *inquiry, struct slice frame, struct resp_walk walk);
    } subcommands[] = {
        {"id", INQUIRY_ID, 2, 2, NULL},
        {"info", INQUIRY_INFO, 2, 2, NULL},
        {"getredir", INQUIRY_REDIRECTION, 2, 2, NULL},
        {"trackinginfo", INQUIRY_REDIRECTION, 2, 2, NULL},
        {"unblock", INQUIRY_UNBLOCK, 3, 4, read_unblock},
        {"kill", INQUIRY_KILL, 4, ARGUMENTS_MOST, read_kill},
        {"tracking", INQUIRY_TRACKING, 5, ARGUMENTS_MOST, read_tracking},
    };
    struct resp_walk walk = resp_walk_start(frame);
    struct slice name, subcommand;

    if (!resp_walk_next(&walk, &name) || !word_is(name, "client") || !resp_walk_next(&walk, &subcommand)) {
        return false;
    }
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++) {
        if (!word_is(subcommand, subcommands[i].name)) {
            continue;
        }
        inquiry->kind = subcommands[i].kind;
        bool is_counted =
            framed->argument_count >= subcommands[i].least && framed->argument_count <= subcommands[i].most;
        bool is_needed = inquiry->kind != INQUIRY_REDIRECTION || client->session.redirection.id != 0;
        return is_counted && is_needed && (subcommands[i].read == NULL || subcommands[i].read(inquiry, frame, walk));
    }
    return false;
}

/* ---- replies about the client itself ---- */

static bool add(struct client *client, struct buffer *made, const char *text, size_t length)
{
    return buffer_append(&client->service->reactor->buffers, made, text, length);
}

static bool add_pair(struct client *client, struct buffer *made, const char *key, const char *value)
{
    return add(client, made, key, strlen(key)) &&
           (value == NULL || value[0] == '\0' || add(client, made, value, strlen(value)));
}

static bool begins(struct slice word, const char *key)
{
    return word.length >= strlen(key) && memcmp(word.data, key, strlen(key)) == 0;
}

/* One "key=value" of CLIENT INFO. False when memory is short. */
static bool add_word(struct client *client, struct buffer *made, struct slice word)
{
    const struct redirection *redirection = &client->session.redirection;
    char number[32], redirected[48];

    snprintf(redirected, sizeof redirected, "redir=%" PRId64, redirection->connection);
    if (begins(word, "id=")) {
        snprintf(number, sizeof number, "%" PRId64, client_own_id(client));
        return add_pair(client, made, "id=", number);
    }
    if (begins(word, "addr=")) {
        return add_pair(client, made, "addr=", client->address_text);
    }
    /* What the client has said of itself since it has to be doubted, its lane alone has heard. */
    bool is_known = !client->session.unsure;
    if (is_known && begins(word, "name=")) {
        return add_pair(client, made, "name=", client->name);
    }
    if (is_known && begins(word, "lib-name=")) {
        return add_pair(client, made, "lib-name=", client->library_name);
    }
    if (is_known && begins(word, "lib-ver=")) {
        return add_pair(client, made, "lib-ver=", client->library_version);
    }
    if (begins(word, "age=")) {
        int64_t age_us = reactor_now(client->service->reactor) - client->connected_us;
        snprintf(number, sizeof number, "%" PRId64, age_us / 1000000);
        return add_pair(client, made, "age=", number);
    }
    if (redirection->id != 0 && word.length == strlen(redirected) && begins(word, redirected)) {
        snprintf(number, sizeof number, "%" PRId64, redirection->id);
        return add_pair(client, made, "redir=", number);
    }
    return add(client, made, word.data, word.length);
}

static bool add_words(struct client *client, struct buffer *made, struct slice line)
{
    bool is_added = true;

    while (is_added && line.length > 0) {
        const char *blank = memchr(line.data, ' ', line.length);
        size_t length = blank != NULL ? (size_t)(blank - line.data) : line.length;
        is_added =
            add_word(client, made, (struct slice){line.data, length}) && (blank == NULL || add(client, made, blank, 1));
        length += blank != NULL;
        line = (struct slice){line.data + length, line.length - length};
    }
    return is_added;
}

/* The one line of a bulk string, or of a verbatim one; nothing if it is neither. */
static struct slice line_of(struct slice reply)
{
    const char *end = memchr(reply.data, '\n', reply.length);
    size_t kind = reply.data[0] == '=' ? 4 : 0;
    size_t head = end != NULL ? (size_t)(end - reply.data) + 1 + kind : reply.length;

    if ((reply.data[0] != '$' && reply.data[0] != '=') || reply.length < head + 2) {
        return (struct slice){reply.data, 0};
    }
    return (struct slice){reply.data + head, reply.length - head - 2};
}

static bool rewrite_info(struct client *client, struct slice reply, struct buffer *made)
{
    struct slice line = line_of(reply);
    struct buffer text = {0};
    char head[48];

    snprintf(head, sizeof head, "id=%" PRId64 " ", client_knows_lane(client) ? client->exclusive->redis_id : 0);
    if (!client_knows_lane(client) || !begins(line, head)) {
        return true;
    }
    size_t kind = reply.data[0] == '=' ? 4 : 0;
    bool is_made = add(client, &text, line.data - kind, kind) && add_words(client, &text, line);
    snprintf(head, sizeof head, "%c%zu\r\n", reply.data[0], buffer_length(&text));
    is_made = is_made && add(client, made, head, strlen(head)) &&
              add(client, made, buffer_head(&text), buffer_length(&text)) && add(client, made, "\r\n", 2);
    buffer_clear(&client->service->reactor->buffers, &text);
    return is_made;
}

/* The reply with one number in place of another, where it stands behind the mark. */
static bool replace(struct client *client, struct slice reply, const char *mark, int64_t from, int64_t to,
                    struct buffer *made)
{
    char old[64], new[32];

    snprintf(old, sizeof old, "%s%" PRId64 "\r\n", mark, from);
    snprintf(new, sizeof new, "%" PRId64 "\r\n", to);
    const char *found = from > 0 ? memmem(reply.data, reply.length, old, strlen(old)) : NULL;
    if (found == NULL) {
        return true;
    }
    size_t before = (size_t)(found - reply.data) + strlen(mark);
    size_t behind = (size_t)(found - reply.data) + strlen(old);
    return add(client, made, reply.data, before) && add(client, made, new, strlen(new)) &&
           add(client, made, reply.data + behind, reply.length - behind);
}

bool client_inquiry_rewrite(const struct client_inquiry *inquiry, struct slice reply, struct buffer *made)
{
    struct client *client = inquiry->client;
    const struct redirection *redirection = &client->session.redirection;
    int64_t lane_id = client->exclusive != NULL ? client->exclusive->redis_id : 0;

    switch (inquiry->kind) {
    case INQUIRY_ID:
        return reply.data[0] != ':' || replace(client, reply, ":", lane_id, client_own_id(client), made);
    case INQUIRY_INFO:
        return rewrite_info(client, reply, made);
    case INQUIRY_REDIRECTION:
        return replace(client, reply, reply.data[0] == ':' ? ":" : "$8\r\nredirect\r\n:", redirection->connection,
                       redirection->id, made);
    case INQUIRY_UNBLOCK:
    case INQUIRY_KILL:
    case INQUIRY_TRACKING:
        return true;
    }
    return true;
}
