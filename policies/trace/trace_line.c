/*
 * A request as a line. Of what clients send, only what is known to be no secret is shown: names of commands and
 * subcommands that the table has, or that the server has told of, and keys if they are asked for. Of errors, the word
 * at their head.
 */
#include "trace/trace_private.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Keys that a line has, and the bytes of each. */
#define KEYS_SHOWN 8
#define KEY_SHOWN_MAX 96
/* Bytes of one key with its escapes. */
#define KEY_ROOM (4 * KEY_SHOWN_MAX + 8)

static const char *const verdict_names[] = {
    [TRACE_PASSED] = "passed", [TRACE_HELD] = "held", [TRACE_REFUSED] = "refused", [TRACE_ANSWERED] = "answered",
    [TRACE_CLOSED] = "closed", [TRACE_LOST] = "lost", [TRACE_LEFT] = "left",
};

/* ---- texts ---- */

static bool is_plain(unsigned char c)
{
    return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != ',';
}

size_t trace_word(struct slice word, char *text, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    size_t length = 0;

    for (size_t i = 0; i < word.length && length + 5 <= size; i++) {
        unsigned char c = (unsigned char)word.data[i];
        if (is_plain(c)) {
            text[length++] = (char)c;
        } else {
            const char escaped[4] = {'\\', 'x', digits[c >> 4], digits[c & 15]};
            memcpy(text + length, escaped, sizeof escaped);
            length += sizeof escaped;
        }
    }
    text[length] = '\0';
    return length;
}

struct search {
    struct slice wanted;
    const char *found;
};

static void look_at_subcommand(void *context, const char *name, uint32_t categories)
{
    struct search *search = context;

    (void)categories;
    if (word_is(search->wanted, name)) {
        search->found = name;
    }
}

/* NULL: the table has none of that name. */
static const char *subcommand_of(const struct policy_request *request)
{
    const struct resp_argument *second = &request->framed->arguments[1];
    struct search search = {.found = NULL};

    if (command_has_subcommands(request->command) && resp_command_arguments_seen(request->framed) >= 2) {
        search.wanted = (struct slice){request->frame.data + second->offset, (size_t)second->length};
        command_visit_subcommands(request->command, look_at_subcommand, &search);
    }
    return search.found;
}

void trace_name_operation(const struct policy_request *request, char name[TRACE_OPERATION_MAX])
{
    const struct command *command = request->command != NULL ? request->command : request->learned;
    const char *subcommand = request->command != NULL ? subcommand_of(request) : NULL;
    const char *first = command != NULL ? command->name : "unknown";

    /* Of each request, also those that no stream wants: they are not to wait for a format to be read. */
    if (subcommand == NULL) {
        size_t length = strnlen(first, TRACE_OPERATION_MAX - 1);
        memcpy(name, first, length);
        name[length] = '\0';
    } else {
        snprintf(name, TRACE_OPERATION_MAX, "%s|%s", first, subcommand);
    }
}

size_t trace_client(const struct policy_client *client, char *text, size_t size)
{
    char name[1024], user[512], identity[256];

    (void)trace_word(slice_of(client->name), name, sizeof name);
    (void)trace_word(slice_of(client->user), user, sizeof user);
    (void)trace_word(slice_of(client->identity_name), identity, sizeof identity);
    int length = snprintf(text, size, "id=%" PRIu64 " addr=%s name=%s user=%s identity=%s", client->id,
                          client->address_text, name, user, identity);
    return (size_t)length < size ? (size_t)length : size - 1;
}

char *trace_head(const struct trace_subject *subject)
{
    const struct policy_request *request = subject->request;
    const struct policy_host *host = subject->host;
    char client[2048], head[TRACE_LINE_MAX];
    int64_t wall_us = host->wall_us(host->context) - (request->now_us - request->received_us);

    (void)trace_client(request->client, client, sizeof client);
    snprintf(head, sizeof head,
             "time=%" PRId64 ".%06" PRId64 " worker=%zu %s db=%" PRId64 " op=%s args=%" PRIu32 " bytes=%" PRIu64,
             wall_us / 1000000, wall_us % 1000000, host->worker, client, request->client->database, subject->operation,
             request->argument_count, subject->bytes);
    return strdup(head);
}

/* ---- keys ---- */

struct keys {
    char text[KEYS_SHOWN * KEY_ROOM];
    size_t length;
    uint32_t count;
};

static bool add_key(void *context, struct slice key, uint32_t argument_index)
{
    struct keys *keys = context;
    struct slice shown = {key.data, key.length < KEY_SHOWN_MAX ? key.length : KEY_SHOWN_MAX};

    (void)argument_index;
    if (keys->count++ < KEYS_SHOWN) {
        if (keys->length > 0) {
            keys->text[keys->length++] = ',';
        }
        keys->length += trace_word(shown, keys->text + keys->length, KEY_ROOM - 5);
        if (key.length > KEY_SHOWN_MAX) {
            memcpy(keys->text + keys->length, "...", 4);
            keys->length += 3;
        }
    }
    return true;
}

char *trace_keys(const struct policy_request *request)
{
    struct keys keys = {.length = 0, .count = 0};

    keys.text[0] = '\0';
    (void)match_visit_keys(request, add_key, &keys);
    if (keys.count > KEYS_SHOWN) {
        snprintf(keys.text + keys.length, sizeof keys.text - keys.length, ",+%" PRIu32, keys.count - KEYS_SHOWN);
    }
    return strdup(keys.text);
}

/* ---- how it ended ---- */

static const char *reply_type(char first)
{
    static const struct {
        char first;
        const char *name;
    } types[] = {{'+', "status"}, {':', "integer"}, {'$', "bulk"},     {'*', "array"},   {'_', "null"},
                 {'%', "map"},    {'~', "set"},     {',', "double"},   {'#', "boolean"}, {'(', "number"},
                 {'=', "text"},   {'>', "push"},    {'|', "attribute"}};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].first == first) {
            return types[i].name;
        }
    }
    return "error";
}

/* The word at the head of an error, if it is one of capitals. */
static struct slice error_word(struct slice head)
{
    size_t length = 1;

    while (length < head.length && (isupper((unsigned char)head.data[length]) || head.data[length] == '_')) {
        length++;
    }
    bool is_word =
        head.length > 0 && head.data[0] == '-' && length < head.length && isspace((unsigned char)head.data[length]);
    return is_word ? (struct slice){head.data + 1, length - 1} : (struct slice){"", 0};
}

static void describe_reply(const struct policy_reply *reply, char *text, size_t size)
{
    struct slice head = reply->head;
    bool is_null = head.length >= 3 && (head.data[0] == '$' || head.data[0] == '*') && head.data[1] == '-';

    text[0] = '\0';
    if (head.length > 0) {
        struct slice word = error_word(head);
        snprintf(text, size, "%s%s%.*s", is_null ? "null" : reply_type(head.data[0]), word.length > 0 ? ":" : "",
                 (int)word.length, word.data);
    }
}

static int64_t waited_us(const struct trace_subject *subject)
{
    const struct traced *traced = subject->traced;

    return (traced->sent_us > 0 ? traced->sent_us : subject->reply->now_us) - traced->received_us;
}

/* -1: it was not sent, or that is not known. */
static int64_t redis_us(const struct trace_subject *subject)
{
    return subject->traced->sent_us > 0 ? subject->reply->now_us - subject->traced->sent_us : -1;
}

static void show_ms(int64_t us, char *text, size_t size)
{
    text[0] = '\0';
    if (us >= 0) {
        snprintf(text, size, "%" PRId64 ".%03" PRId64, us / 1000, us % 1000);
    }
}

size_t trace_line(const struct trace_subject *subject, bool with_keys, char line[TRACE_LINE_MAX])
{
    const struct traced *traced = subject->traced;
    char waited[32], redis[32], reply[64], rule[4 * TRACE_RULE_MAX];
    const char *keys = traced->keys != NULL ? traced->keys : "";

    show_ms(waited_us(subject), waited, sizeof waited);
    show_ms(redis_us(subject), redis, sizeof redis);
    describe_reply(subject->reply, reply, sizeof reply);
    (void)trace_word(slice_of(traced->rule), rule, sizeof rule);
    int length =
        snprintf(line, TRACE_LINE_MAX - 1,
                 "%s lane=%" PRIu64 " waited=%s redis=%s verdict=%s rule=%s reply=%s rbytes=%" PRIu64 "%s%s",
                 traced->head != NULL ? traced->head : "", traced->lane, waited, redis, verdict_names[traced->verdict],
                 rule, reply, subject->reply->length, with_keys ? " keys=" : "", with_keys ? keys : "");
    size_t used = (size_t)length < TRACE_LINE_MAX - 1 ? (size_t)length : TRACE_LINE_MAX - 2;
    line[used] = '\n';
    line[used + 1] = '\0';
    return used + 1;
}

/* ---- filters ---- */

const struct filter_field trace_fields[] = {
    {"id", FILTER_NUMBER},     {"addr", FILTER_ADDRESS}, {"name", FILTER_TEXT},     {"user", FILTER_TEXT},
    {"identity", FILTER_TEXT}, {"db", FILTER_NUMBER},    {"op", FILTER_TEXT},       {"args", FILTER_NUMBER},
    {"bytes", FILTER_NUMBER},  {"lane", FILTER_NUMBER},  {"waited", FILTER_NUMBER}, {"redis", FILTER_NUMBER},
    {"verdict", FILTER_TEXT},  {"rule", FILTER_TEXT},    {"rbytes", FILTER_NUMBER},
};
const size_t trace_field_count = sizeof trace_fields / sizeof trace_fields[0];

static struct filter_value text(const char *value)
{
    return (struct filter_value){.text = value};
}

static struct filter_value number(int64_t value)
{
    return (struct filter_value){.number = value};
}

static struct filter_value early_value(const struct trace_subject *subject, size_t field)
{
    const struct policy_request *request = subject->request;
    const struct policy_client *client = request->client;

    switch (field) {
    case 0:
        return number((int64_t)client->id);
    case 1:
        return (struct filter_value){.text = client->address_text, .address = client->address};
    case 2:
        return text(client->name);
    case 3:
        return text(client->user);
    case 4:
        return text(client->identity_name);
    case 5:
        return number(client->database);
    case 6:
        return text(subject->operation);
    case 7:
        return number(request->argument_count);
    default:
        return number((int64_t)subject->bytes);
    }
}

struct filter_value trace_value(const void *context, size_t field)
{
    const struct trace_subject *subject = context;

    if (field < TRACE_FIELDS_EARLY) {
        return early_value(subject, field);
    }
    switch (field - TRACE_FIELDS_EARLY) {
    case 0:
        return number((int64_t)subject->traced->lane);
    case 1:
        return number(waited_us(subject) / 1000);
    case 2:
        return number(redis_us(subject) / 1000);
    case 3:
        return text(verdict_names[subject->traced->verdict]);
    case 4:
        return text(subject->traced->rule);
    default:
        return number((int64_t)subject->reply->length);
    }
}
