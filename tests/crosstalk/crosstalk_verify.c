#include "crosstalk_verify.h"

#include "crosstalk_attacker.h"
#include "crosstalk_text.h"
#include "rig_reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DESCRIPTION_MAX 512
#define SHOWN_BYTES 200
#define PAST_MAX 1500

static const char *const kind_names[] = {
    [EXPECT_STATUS] = "status",
    [EXPECT_TEXT] = "bulk",
    [EXPECT_IDENTITY] = "identity",
    [EXPECT_VALUE] = "value",
    [EXPECT_LARGE] = "large value",
    [EXPECT_INTEGER] = "integer",
    [EXPECT_RANGE] = "integer from",
    [EXPECT_CLIENT_ID] = "CLIENT ID",
    [EXPECT_CLIENT_INFO] = "CLIENT INFO",
    [EXPECT_NULL] = "null",
    [EXPECT_NULL_ARRAY] = "null array",
    [EXPECT_ARRAY] = "array",
    [EXPECT_LIST_KEY] = "list key",
    [EXPECT_SUBSCRIBED] = "subscribed to channel",
    [EXPECT_UNSUBSCRIBED] = "unsubscribed from channel",
    [EXPECT_ERROR] = "error",
    [EXPECT_ERROR_OWN] = "error",
    [EXPECT_HELLO] = "HELLO map of protocol",
    [EXPECT_RESET] = "status RESET",
};

/* They tell an EXEC from a BLPOP and from an MGET. */
static void describe_elements(const struct client *client, uint32_t count, char *out)
{
    for (size_t place = 1; place <= count; place++) {
        const struct expectation *element = expect_at(&client->expected, place);
        size_t length = strlen(out);
        if (element != NULL)
            snprintf(out + length, DESCRIPTION_MAX - length, "%s %s %s %" PRId64, place == 1 ? ":" : ",",
                     kind_names[element->kind], element->text != NULL ? element->text : "", element->number);
    }
}

void verify_describe(const struct client *client, char *out)
{
    const struct expectation *head = expect_at(&client->expected, 0);
    if (head == NULL) {
        snprintf(out, DESCRIPTION_MAX, "nothing");
        return;
    }
    int64_t number = head->kind == EXPECT_CLIENT_ID ? client->known_id : head->number;
    snprintf(out, DESCRIPTION_MAX, "%s %s (client %" PRIu32 ", number %" PRId64 ", count %" PRIu32 ", RESP%u)",
             kind_names[head->kind], head->text != NULL ? head->text : "", client->index, number, head->count,
             (unsigned)head->resp);
    if (head->kind == EXPECT_ARRAY)
        describe_elements(client, head->count, out);
}

static void bytes_show(const char *data, size_t length, char *out)
{
    size_t shown = length < SHOWN_BYTES ? length : SHOWN_BYTES;
    for (size_t at = 0; at < shown; at++) {
        if (data[at] >= ' ' && data[at] <= '~' && data[at] != '\\')
            *out++ = data[at];
        else
            out += sprintf(out, "\\x%02x", (unsigned)(unsigned char)data[at]);
    }
    *out = '\0';
}

/* What was answered last, as far as that is kept, the latest first: an unusual reply may be due to what went before. */
static void show_past(const struct client *client, char *out)
{
    const struct expectation *past;
    *out = '\0';
    for (size_t place = 0; (past = expect_dropped(&client->expected, place)) != NULL; place++)
        if (strlen(out) + strlen(kind_names[past->kind]) + 2 < PAST_MAX)
            sprintf(out + strlen(out), ", %s", kind_names[past->kind]);
}

static void tell_violation(struct client *client, const char *what, const char *data, size_t length)
{
    char expected[DESCRIPTION_MAX];
    char got[SHOWN_BYTES * 4 + 1];
    char past[PAST_MAX];
    verify_describe(client, expected);
    bytes_show(data, length, got);
    show_past(client, past);
    run_violation(client->run,
                  "client %" PRIu32 ", generation %" PRIu32 ", user %u, database %u: %s\n  expected: %s\n"
                  "  got (%zu bytes): %s\n  before that:%s",
                  client->index, client_generation(client), client->session.user, client->session.database, what,
                  expected, length, got, past);
}

static bool is_bulk(const struct token *token, const char *text, size_t length)
{
    return token->type == '$' && !token->null && token->length == length && memcmp(token->data, text, length) == 0;
}

static bool is_null(const struct token *token, unsigned resp, char type)
{
    return token->null && token->type == (resp == 3 ? '_' : type);
}

static bool starts_with(const struct token *token, const char *text)
{
    size_t length = strlen(text);
    return token->length >= length && memcmp(token->data, text, length) == 0;
}

static bool holds(const struct token *token, const char *text)
{
    return !token->null && memmem(token->data, token->length, text, strlen(text)) != NULL;
}

static bool data_was_lost(const struct client *client)
{
    return atomic_load(&client->run->epoch) != client->epoch;
}

/* ---- messages of other clients ---- */

/* Messages of one sender's connection come in order, and none is missing between two. */
static bool message_in_order(struct client *client, struct tracker *tracker, const struct message *message)
{
    bool followed = tracker->number != 0 && tracker->generation == message->generation;
    uint64_t last = tracker->number;
    *tracker = (struct tracker){message->generation, message->number};
    if (!followed || message->number == last + 1)
        return true;
    return message->number > last && client->run->options.chaos;
}

static bool message_is_own(struct client *client, const struct token *token, struct tracker *trackers)
{
    struct message message;
    uint32_t clients = client->run->options.clients;
    if (token->type != '$' || token->null || !text_message_parse(token->data, token->length, &message))
        return false;
    if (message.to != client->index || message.from >= clients)
        return false;
    uint32_t distance = (client->index + clients - message.from) % clients;
    if (distance < 1 || distance > NEIGHBOURS)
        return false;
    return message_in_order(client, &trackers[distance - 1], &message);
}

/* An attacker has Redis tell this connection of its own keys, as it can without Headgate. Nothing else is excused. */
static bool is_attackers_key(const struct client *client, const struct token *token)
{
    return client->run->options.attackers > 0 && !token->null && starts_with(token, "evil:");
}

/* The same in RESP2, where it comes to subscribers as a message: the cursor is behind its channel. */
static bool check_redirected(const struct client *client, struct cursor *cursor)
{
    struct token token;
    token_next(cursor, &token);
    if (token.type != '*' || token.null)
        return false;
    for (int64_t left = token.number; left > 0; left--) {
        struct token key;
        token_next(cursor, &key);
        if (!is_attackers_key(client, &key))
            return false;
    }
    return true;
}

/* The cursor is behind the word "message". */
static bool check_published(struct client *client, struct cursor *cursor, int64_t elements)
{
    struct token channel;
    struct token message;
    char own[TEXT_MAX];
    size_t length = text_channel(own, client->index, client->channel);
    if (elements != 3 || (!client->listening && !client->degraded))
        return false;
    token_next(cursor, &channel);
    if (token_is(&channel, '$', "__redis__:invalidate"))
        return check_redirected(client, cursor);
    token_next(cursor, &message);
    return is_bulk(&channel, own, length) && message_is_own(client, &message, client->channel_trackers);
}

/* The cursor is behind the word "invalidate". Null stands for all keys (Redis was emptied). */
static bool check_invalidated(const struct client *client, struct cursor *cursor)
{
    struct token token;
    token_next(cursor, &token);
    for (int64_t left = token.null ? 0 : token.number; left > 0; left--) {
        unsigned user;
        uint32_t owner;
        char text[TEXT_MAX] = "";
        token_next(cursor, &token);
        if (is_attackers_key(client, &token))
            continue;
        if (token.length >= sizeof text)
            return false;
        memcpy(text, token.data, token.length);
        if (sscanf(text, "u%u:%" SCNu32 ":", &user, &owner) != 2 || owner != client->index)
            return false;
    }
    return true;
}

/* Whether the frame is one that answers no request; then it has been judged. */
static bool take_unasked(struct client *client, const char *data, size_t length)
{
    struct cursor cursor = {data, data + length};
    struct token frame;
    struct token word;
    token_next(&cursor, &frame);
    if ((frame.type != '>' && frame.type != '*') || frame.number == 0)
        return false;
    if (token_next(&cursor, &word) != TOKEN_WHOLE || word.type != '$')
        return false;
    bool right = true;
    if (token_is(&word, '$', "message"))
        right = check_published(client, &cursor, frame.number);
    else if (frame.type == '>' && token_is(&word, '$', "invalidate"))
        right = check_invalidated(client, &cursor);
    else
        return false;
    client->figures->pushes++;
    if (!right)
        tell_violation(client, "a push that is not for this client, or out of order", data, length);
    return true;
}

/* ---- replies ---- */

static bool check_subscription(struct client *client, const struct expectation *expected, struct cursor *cursor,
                               const char *word)
{
    struct token token;
    char own[TEXT_MAX];
    size_t length = text_channel(own, client->index, (uint32_t)expected->number);
    bool subscribed = expected->kind == EXPECT_SUBSCRIBED;
    token_next(cursor, &token);
    if (token.type != (expected->resp == 3 ? '>' : '*') || token.number != 3)
        return false;
    token_next(cursor, &token);
    if (!token_is(&token, '$', word))
        return false;
    token_next(cursor, &token);
    if (!is_bulk(&token, own, length))
        return false;
    token_next(cursor, &token);
    client->listening = subscribed;
    client->channel = (uint32_t)expected->number;
    memset(client->channel_trackers, 0, sizeof client->channel_trackers);
    return token.type == ':' && token.number == (subscribed ? 1 : 0);
}

static bool check_hello(const struct expectation *expected, struct cursor *cursor)
{
    struct token token;
    token_next(cursor, &token);
    if (token.type != (expected->number == 3 ? '%' : '*'))
        return false;
    while (token_next(cursor, &token) == TOKEN_WHOLE)
        if (token_is(&token, '$', "proto"))
            return token_next(cursor, &token) == TOKEN_WHOLE && token.type == ':' && token.number == expected->number;
    return false;
}

static bool check_client_id(struct client *client, const struct token *token)
{
    if (token->type != ':' || token->number <= 0)
        return false;
    bool same = client->known_id == 0 || client->known_id == token->number;
    if (!same)
        client->id_changes++;
    client->known_id = token->number;
    return client->id_changes <= 1;
}

/* The digits behind the first place of a text; 0 if there are none. What a token points to does not end in NUL. */
static int64_t number_behind(const struct token *token, const char *text)
{
    const char *end = token->data + token->length;
    const char *at = memmem(token->data, token->length, text, strlen(text));
    int64_t number = 0;
    if (at == NULL)
        return 0;
    for (at += strlen(text); at < end && *at >= '0' && *at <= '9'; at++)
        number = number * 10 + (*at - '0');
    return number;
}

static bool check_client_info(struct client *client, const struct expectation *expected, const struct token *token)
{
    char identity[TEXT_MAX] = "";
    char field[TEXT_MAX * 2];
    if (token->type != (expected->resp == 3 ? '=' : '$') || token->null)
        return false;
    if (expected->number != 0)
        text_identity(identity, client->index, (uint64_t)expected->number);
    snprintf(field, sizeof field, " name=%s ", identity);
    if (!holds(token, field))
        return false;
    snprintf(field, sizeof field, " db=%u ", expect_database(expected->count));
    if (!holds(token, field))
        return false;
    snprintf(field, sizeof field, " user=%s ", user_names[expect_user(expected->count)]);
    if (!holds(token, field))
        return false;
    struct token id = {.type = ':', .number = number_behind(token, "id=")};
    return check_client_id(client, &id);
}

static bool check_error(struct client *client, const struct expectation *expected, const struct token *token)
{
    char identity[TEXT_MAX];
    if (token->type != '-' || !starts_with(token, expected->text))
        return false;
    if (expected->kind != EXPECT_ERROR_OWN)
        return true;
    text_identity(identity, client->index, (uint64_t)expected->number);
    return holds(token, identity);
}

static bool check_bulk(struct client *client, const struct expectation *expected, const struct token *token)
{
    char own[TEXT_MAX];
    uint64_t number = (uint64_t)expected->number;
    switch ((enum expect_kind)expected->kind) {
    case EXPECT_IDENTITY:
        return is_bulk(token, own, text_identity(own, client->index, number));
    case EXPECT_VALUE:
        return is_bulk(token, own, text_value(own, client->index, number));
    case EXPECT_LIST_KEY:
        return is_bulk(token, own,
                       text_key(own, expect_user(expected->count), client->index, (uint32_t)number,
                                expect_database(expected->count), "list"));
    case EXPECT_LARGE:
        return token->type == '$' && !token->null && token->length == expected->count &&
               text_large_is(token->data, token->length, client->index, number);
    default:
        return false;
    }
}

/* Replies that are one token. */
static bool check_token(struct client *client, const struct expectation *expected, const struct token *token)
{
    switch ((enum expect_kind)expected->kind) {
    case EXPECT_STATUS:
        return token_is(token, '+', expected->text);
    case EXPECT_TEXT:
        return token_is(token, '$', expected->text);
    case EXPECT_INTEGER:
        return token->type == ':' && token->number == expected->number;
    case EXPECT_RANGE:
        return token->type == ':' && token->number >= expected->number && token->number <= (int64_t)expected->count;
    case EXPECT_CLIENT_ID:
        return check_client_id(client, token);
    case EXPECT_CLIENT_INFO:
        return check_client_info(client, expected, token);
    case EXPECT_NULL:
        return is_null(token, expected->resp, '$');
    case EXPECT_NULL_ARRAY:
        return is_null(token, expected->resp, '*');
    case EXPECT_ERROR:
    case EXPECT_ERROR_OWN:
        return check_error(client, expected, token);
    case EXPECT_RESET:
        client->listening = false;
        client->known_id = 0;
        return token_is(token, '+', "RESET");
    default:
        return check_bulk(client, expected, token);
    }
}

static bool check_array(struct client *client, const struct expectation *expected, struct cursor *cursor)
{
    struct token token;
    token_next(cursor, &token);
    if (token.type != '*' || token.null || token.number != (int64_t)expected->count)
        return false;
    for (size_t place = 1; place <= expected->count; place++) {
        token_next(cursor, &token);
        if (!check_token(client, expect_at(&client->expected, place), &token))
            return false;
    }
    return true;
}

static bool check_reply(struct client *client, const struct expectation *expected, struct cursor *cursor)
{
    struct token token;
    switch ((enum expect_kind)expected->kind) {
    case EXPECT_ARRAY:
        return check_array(client, expected, cursor);
    case EXPECT_SUBSCRIBED:
        return check_subscription(client, expected, cursor, "subscribe");
    case EXPECT_UNSUBSCRIBED:
        return check_subscription(client, expected, cursor, "unsubscribe");
    case EXPECT_HELLO:
        return check_hello(expected, cursor);
    default:
        token_next(cursor, &token);
        return check_token(client, expected, &token);
    }
}

/* ---- what faults excuse ---- */

/* Errors of Redis or Headgate that tell of the other's absence. */
static bool error_excused(const struct client *client, const char *data, size_t length)
{
    struct cursor cursor = {data, data + length};
    struct token token;
    token_next(&cursor, &token);
    if (token.type != '-' || !run_excused(client->run))
        return false;
    return starts_with(&token, "LOADING") || starts_with(&token, "ERR headgate:") || starts_with(&token, "UPSTREAM");
}

static bool depends_on_data(const struct expectation *expected)
{
    switch ((enum expect_kind)expected->kind) {
    case EXPECT_VALUE:
    case EXPECT_LARGE:
    case EXPECT_INTEGER:
    case EXPECT_RANGE:
    case EXPECT_ARRAY:
        return true;
    default:
        return false;
    }
}

static bool take_excused(struct client *client, const char *data, size_t length)
{
    const struct expectation *head = expect_at(&client->expected, 0);
    if (error_excused(client, data, length)) {
        client->degraded = true;
        return true;
    }
    bool uncertain = client->degraded || (head != NULL && depends_on_data(head) && data_was_lost(client));
    if (!uncertain || text_names_other(data, length, client->index))
        return false;
    client->figures->resynced++;
    return true;
}

/* Not while faults are excused: then it is their time. */
static void check_time(struct client *client, const struct expectation *expected, const char *data, size_t length)
{
    const struct options *options = &client->run->options;
    int64_t patience = options->fault == FAULT_DELAY ? 0 : PATIENCE_US;
    if (!options->chaos && options->attackers > 0 && now_us() > expected->sent_us + patience)
        tell_violation(client, "a reply that comes too late", data, length);
}

void verify_frame(struct client *client, const char *data, size_t length)
{
    if (take_unasked(client, data, length))
        return;
    const struct expectation *head = expect_at(&client->expected, 0);
    struct cursor cursor = {data, data + length};
    if (head != NULL)
        check_time(client, head, data, length);
    if (head != NULL && check_reply(client, head, &cursor))
        client->figures->verified++;
    else if (!take_excused(client, data, length))
        tell_violation(client, head == NULL ? "a reply to no request" : "a wrong reply", data, length);
    expect_pop(&client->expected);
}
