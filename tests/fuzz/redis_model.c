#include "redis_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A bulk longer than this is not sound; the target sends none. */
#define BULK_MAX ((uint64_t)1 << 24)

const char model_message[] = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$9\r\nthe-news!\r\n";
const char model_push[] = ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$9\r\nthe-news!\r\n";

/* ---- replies ---- */

struct arguments {
    struct slice list[MODEL_ARGUMENTS];
    size_t count; /* of all */
    struct slice frame;
};

static void reply(struct model *model, const char *text)
{
    bytes_add(&model->output, text, strlen(text));
}

static void reply_bulk(struct model *model, struct slice text)
{
    char head[32];

    bytes_add(&model->output, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", text.length));
    bytes_add(&model->output, text.data, text.length);
    reply(model, "\r\n");
}

static void reply_text(struct model *model, const char *text)
{
    reply_bulk(model, (struct slice){text, strlen(text)});
}

static void reply_number(struct model *model, char type, size_t number)
{
    char text[32];

    bytes_add(&model->output, text, (size_t)snprintf(text, sizeof text, "%c%zu\r\n", type, number));
}

static void reply_null(struct model *model)
{
    reply(model, model->resp == 3 ? "_\r\n" : "$-1\r\n");
}

/* Words end at a NUL, for strcasecmp() as for Redis. */
static bool is(const struct arguments *arguments, size_t index, const char *word)
{
    char text[32];

    if (index >= arguments->count || index >= MODEL_ARGUMENTS || arguments->list[index].length == 0) {
        return false;
    }
    struct slice argument = arguments->list[index];
    size_t length = strnlen(argument.data, argument.length);
    if (length >= sizeof text) {
        return false;
    }
    memcpy(text, argument.data, length);
    text[length] = '\0';
    return strcasecmp(text, word) == 0;
}

/* Numbers, users and passwords do not. */
static bool is_exactly(const struct arguments *arguments, size_t index, const char *value)
{
    return is(arguments, index, value) && arguments->list[index].length == strlen(value);
}

/* As long as there is room, which the target's own requests never use up. */
static void keep(char *place, size_t size, struct slice text)
{
    size_t length = text.length < size - 1 ? text.length : size - 1;

    memcpy(place, text.data, length);
    place[length] = '\0';
}

/* What flags a transaction as one that EXEC must refuse. */
static void refuse(struct model *model, const char *text)
{
    model->spoiled = model->spoiled || model->transaction;
    reply(model, text);
}

/* ---- transactions ---- */

static void run(struct model *model, const struct arguments *arguments);
static struct arguments arguments_of(struct slice frame);
static void take_by_its_own_name(struct arguments *arguments);

static void forget_transaction(struct model *model)
{
    for (size_t i = 0; i < model->queued_count; i++) {
        bytes_free(&model->queued[i]);
    }
    model->queued_count = 0;
    model->transaction = false;
    model->spoiled = false;
}

static void run_multi(struct model *model)
{
    if (model->transaction) {
        reply(model, "-ERR MULTI calls can not be nested\r\n");
        return;
    }
    model->transaction = true;
    reply(model, "+OK\r\n");
}

static void run_discard(struct model *model)
{
    reply(model, model->transaction ? "+OK\r\n" : "-ERR DISCARD without MULTI\r\n");
    forget_transaction(model);
}

static void run_exec(struct model *model)
{
    if (!model->transaction) {
        reply(model, "-ERR EXEC without MULTI\r\n");
        return;
    }
    if (model->spoiled) {
        reply(model, "-EXECABORT Transaction discarded because of previous errors.\r\n");
        forget_transaction(model);
        return;
    }
    model->transaction = false;
    model->in_exec = true;
    reply_number(model, '*', model->queued_count);
    for (size_t i = 0; i < model->queued_count; i++) {
        struct arguments queued = arguments_of((struct slice){model->queued[i].data, model->queued[i].length});
        take_by_its_own_name(&queued);
        run(model, &queued);
    }
    model->in_exec = false;
    forget_transaction(model);
}

static void queue(struct model *model, const struct arguments *arguments)
{
    if (model->queued_count == MODEL_QUEUED) {
        refuse(model, "-ERR too many commands in one transaction\r\n");
        return;
    }
    bytes_add(&model->queued[model->queued_count++], arguments->frame.data, arguments->frame.length);
    reply(model, "+QUEUED\r\n");
}

/* ---- the connection ---- */

static void run_select(struct model *model, const struct arguments *arguments)
{
    if (is_exactly(arguments, 1, "0") || is_exactly(arguments, 1, "1")) {
        model->database = is(arguments, 1, "1");
        reply(model, "+OK\r\n");
    } else {
        reply(model, "-ERR DB index is out of range\r\n");
    }
}

/* The password of each user is "p". */
static bool log_in(struct model *model, const struct arguments *arguments, size_t index)
{
    if (!is_exactly(arguments, index + 1, "p") ||
        !(is_exactly(arguments, index, "u") || is_exactly(arguments, index, "v"))) {
        reply(model, "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
        return false;
    }
    keep(model->user, sizeof model->user, arguments->list[index]);
    return true;
}

static void run_auth(struct model *model, const struct arguments *arguments)
{
    if (log_in(model, arguments, 1)) {
        reply(model, "+OK\r\n");
    }
}

/* HELLO [version [AUTH user password | SETNAME name]] */
static void run_hello(struct model *model, const struct arguments *arguments)
{
    bool has_credentials = arguments->count == 5 && is(arguments, 2, "auth");
    bool has_name = arguments->count == 4 && is(arguments, 2, "setname");

    if (arguments->count > 1 && !is_exactly(arguments, 1, "2") && !is_exactly(arguments, 1, "3")) {
        reply(model, "-NOPROTO unsupported protocol version\r\n");
        return;
    }
    if (arguments->count > 2 && !has_credentials && !has_name) {
        reply(model, "-ERR Syntax error in HELLO option\r\n");
        return;
    }
    if (has_credentials && !log_in(model, arguments, 3)) {
        return;
    }
    if (has_name) {
        keep(model->name, sizeof model->name, arguments->list[3]);
    }
    if (arguments->count > 1) {
        model->resp = is(arguments, 1, "3") ? 3 : 2;
    }
    reply(model, model->resp == 3 ? "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"
                                  : "*6\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:1\r\n");
}

static void run_reset(struct model *model)
{
    forget_transaction(model);
    model->channels = 0;
    model->tracking = false;
    model->silent = false;
    model->resp = 2;
    model->database = 0;
    model->name[0] = '\0';
    keep(model->user, sizeof model->user, (struct slice){"default", 7});
    reply(model, "+RESET\r\n");
}

static void run_client_reply(struct model *model, const struct arguments *arguments)
{
    if (is(arguments, 2, "on")) {
        model->silent = false;
        model->skipping = false;
        reply(model, "+OK\r\n");
    } else if (is(arguments, 2, "off")) {
        model->silent = true;
    } else if (is(arguments, 2, "skip")) {
        model->skip_next = !model->silent;
        model->skipping = true;
    } else {
        reply(model, "-ERR syntax error\r\n");
    }
}

static void run_client(struct model *model, const struct arguments *arguments)
{
    if (is(arguments, 1, "reply") && arguments->count == 3) {
        run_client_reply(model, arguments);
    } else if (is(arguments, 1, "setname") && arguments->count == 3) {
        keep(model->name, sizeof model->name, arguments->list[2]);
        reply(model, "+OK\r\n");
    } else if (is(arguments, 1, "getname") && arguments->count == 2) {
        model->name[0] != '\0' ? reply_text(model, model->name) : reply_null(model);
    } else if (is(arguments, 1, "tracking") && arguments->count == 3) {
        model->tracking = is(arguments, 2, "on");
        reply(model, "+OK\r\n");
    } else {
        reply(model, "+OK\r\n");
    }
}

/* ---- channels: "a" to "d" ---- */

static unsigned channel_bit(struct slice name)
{
    return name.length == 1 && name.data[0] >= 'a' && name.data[0] <= 'd' ? 1U << (name.data[0] - 'a') : 0;
}

static unsigned channel_count(const struct model *model)
{
    unsigned count = 0;

    for (unsigned bits = model->channels; bits != 0; bits >>= 1) {
        count += bits & 1;
    }
    return count;
}

/* Confirmations come whatever CLIENT REPLY said. */
static void confirm(struct model *model, const char *kind, struct slice channel)
{
    reply(model, model->resp == 3 ? ">3\r\n" : "*3\r\n");
    reply_text(model, kind);
    channel.data != NULL ? reply_bulk(model, channel) : reply_null(model);
    reply_number(model, ':', channel_count(model));
}

static void run_subscribe(struct model *model, const struct arguments *arguments)
{
    for (size_t i = 1; i < arguments->count && i < MODEL_ARGUMENTS; i++) {
        model->channels |= channel_bit(arguments->list[i]);
        confirm(model, "subscribe", arguments->list[i]);
    }
}

static void run_unsubscribe(struct model *model, const struct arguments *arguments)
{
    static const char names[] = "abcd";

    for (size_t i = 1; i < arguments->count && i < MODEL_ARGUMENTS; i++) {
        model->channels &= ~channel_bit(arguments->list[i]);
        confirm(model, "unsubscribe", arguments->list[i]);
    }
    if (arguments->count > 1) {
        return;
    }
    if (model->channels == 0) {
        confirm(model, "unsubscribe", (struct slice){NULL, 0});
    }
    for (size_t i = 0; model->channels != 0; i++) {
        struct slice name = {names + i, 1};
        if ((model->channels & channel_bit(name)) != 0) {
            model->channels &= ~channel_bit(name);
            confirm(model, "unsubscribe", name);
        }
    }
}

void model_publish(struct model *model)
{
    if ((model->channels & 1) != 0) {
        reply(model, model->resp == 3 ? model_push : model_message);
    }
}

/* ---- commands ---- */

static void run_ping(struct model *model)
{
    reply(model, model->channels != 0 && model->resp == 2 ? "*2\r\n$4\r\npong\r\n$0\r\n\r\n" : "+PONG\r\n");
}

static void run_touch(struct model *model)
{
    if (model->tracking && model->resp == 3) {
        reply(model, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n");
    }
    reply(model, ":1\r\n");
}

static void run_blocking(struct model *model)
{
    if (model->blocks && !model->in_exec) {
        model->blocked = true;
    } else {
        reply(model, model->resp == 3 ? "_\r\n" : "*-1\r\n");
    }
}

/* ---- renamed commands ---- */

/* Names that the operator has given to commands. Of those that are hidden COMMAND tells nothing. */
static const struct {
    const char *name, *command;
    bool is_hidden;
} renamed[] = {
    {"kclient", "client", false}, {"ksub", "subscribe", false}, {"kauth", "auth", false}, {"kmulti", "multi", false},
    {"hclient", "client", true},  {"hsub", "subscribe", true},  {"hauth", "auth", true},  {"hreset", "reset", true},
};

#define RENAMED (sizeof renamed / sizeof renamed[0])

/* The place of that name in the list; RENAMED: none. */
static size_t find_renamed(const struct arguments *arguments, size_t index)
{
    size_t i = 0;

    while (i < RENAMED && !is(arguments, index, renamed[i].name)) {
        i++;
    }
    return i;
}

struct slice model_own_name(struct slice name)
{
    const struct arguments arguments = {.list = {name}, .count = 1};
    size_t i = find_renamed(&arguments, 0);

    return i < RENAMED && !renamed[i].is_hidden ? (struct slice){renamed[i].command, strlen(renamed[i].command)} : name;
}

/* COMMAND INFO name; there are no other commands than those of Headgate's own table. */
static void run_command(struct model *model, const struct arguments *arguments)
{
    size_t i = find_renamed(arguments, 2);

    if (!is(arguments, 1, "info")) {
        reply(model, "*0\r\n");
    } else if (i == RENAMED) {
        reply(model, "*1\r\n*-1\r\n");
    } else if (renamed[i].is_hidden) {
        reply(model, "-NOPERM this user has no permissions to run the 'command|info' command\r\n");
    } else {
        reply(model, "*1\r\n*6\r\n");
        reply_text(model, renamed[i].command);
        reply(model, ":-1\r\n*0\r\n:0\r\n:0\r\n:0\r\n");
    }
}

static void take_by_its_own_name(struct arguments *arguments)
{
    size_t i = find_renamed(arguments, 0);

    if (i < RENAMED) {
        arguments->list[0] = (struct slice){renamed[i].command, strlen(renamed[i].command)};
    }
}

/* ---- commands ---- */

static void run_plain(struct model *model, const struct arguments *arguments)
{
    char number[32];

    if (is(arguments, 0, "echo")) {
        reply_bulk(model, arguments->list[1]);
    } else if (is(arguments, 0, "get")) {
        reply_null(model);
    } else if (is(arguments, 0, "dbsize")) {
        reply_number(model, ':', (size_t)model->database);
    } else if (is(arguments, 0, "acl")) {
        reply_text(model, model->user);
    } else if (is(arguments, 0, "info")) {
        snprintf(number, sizeof number, "redis_version:7.2.%d\r\n", 0);
        reply_text(model, number);
    } else if (is(arguments, 0, "command")) {
        run_command(model, arguments);
    } else if (is(arguments, 0, "evalsha") || is(arguments, 0, "wait")) {
        reply(model, ":0\r\n");
    } else {
        reply(model, "+OK\r\n");
    }
}

/* Whether XREAD or XREADGROUP has the option BLOCK. Options come before the word STREAMS. */
static bool reads_blocking(const struct arguments *arguments)
{
    bool blocks = false;

    for (size_t i = 1; i < arguments->count && !is(arguments, i, "streams"); i++) {
        blocks = blocks || is(arguments, i, "block");
        i += is(arguments, i, "group") ? 2 : is(arguments, i, "count") || is(arguments, i, "block") ? 1 : 0;
    }
    return blocks;
}

static void run_read(struct model *model, const struct arguments *arguments)
{
    if (reads_blocking(arguments)) {
        run_blocking(model);
    } else {
        reply(model, model->resp == 3 ? "_\r\n" : "*-1\r\n");
    }
}

static void run(struct model *model, const struct arguments *arguments)
{
    if (is(arguments, 0, "xread") || is(arguments, 0, "xreadgroup")) {
        run_read(model, arguments);
    } else if (is(arguments, 0, "ping")) {
        run_ping(model);
    } else if (is(arguments, 0, "select")) {
        run_select(model, arguments);
    } else if (is(arguments, 0, "auth")) {
        run_auth(model, arguments);
    } else if (is(arguments, 0, "hello")) {
        run_hello(model, arguments);
    } else if (is(arguments, 0, "client")) {
        run_client(model, arguments);
    } else if (is(arguments, 0, "subscribe")) {
        run_subscribe(model, arguments);
    } else if (is(arguments, 0, "unsubscribe")) {
        run_unsubscribe(model, arguments);
    } else if (is(arguments, 0, "touch")) {
        run_touch(model);
    } else if (is(arguments, 0, "blpop")) {
        run_blocking(model);
    } else {
        run_plain(model, arguments);
    }
}

static bool has_bad_arity(const struct arguments *arguments)
{
    static const struct {
        const char *name;
        size_t least, most;
    } arities[] = {
        {"multi", 1, 1}, {"exec", 1, 1},   {"discard", 1, 1}, {"watch", 2, 99},     {"unwatch", 1, 1},
        {"reset", 1, 1}, {"select", 2, 2}, {"auth", 2, 3},    {"subscribe", 2, 99}, {"echo", 2, 2},
        {"get", 2, 2},   {"client", 2, 9}, {"dbsize", 1, 1},  {"blpop", 3, 99},     {"ping", 1, 2},
    };

    for (size_t i = 0; i < sizeof arities / sizeof arities[0]; i++) {
        if (is(arguments, 0, arities[i].name)) {
            return arguments->count < arities[i].least || arguments->count > arities[i].most;
        }
    }
    return false;
}

static void refuse_arity(struct model *model, bool is_exec)
{
    if (is_exec) {
        forget_transaction(model);
        reply(model, "-EXECABORT Transaction discarded because of: wrong number of arguments\r\n");
    } else {
        refuse(model, "-ERR wrong number of arguments\r\n");
    }
}

static bool may_run_subscribed(const struct arguments *arguments)
{
    return is(arguments, 0, "subscribe") || is(arguments, 0, "unsubscribe") || is(arguments, 0, "ping") ||
           is(arguments, 0, "quit") || is(arguments, 0, "reset");
}

/* What makes the client somebody else, amid a transaction, Headgate refuses where there are rules. */
static bool names_somebody(const struct arguments *arguments)
{
    return is(arguments, 0, "auth") || (is(arguments, 0, "hello") && arguments->count > 2) ||
           (is(arguments, 0, "client") && is(arguments, 1, "setname"));
}

static bool has_nul(const struct arguments *arguments, size_t index)
{
    return index < arguments->count && index < MODEL_ARGUMENTS && arguments->list[index].length > 0 &&
           memchr(arguments->list[index].data, '\0', arguments->list[index].length) != NULL;
}

/* What Headgate promises to answer in place of Redis. True: it did. */
static bool refuse_names(struct model *model, const struct arguments *arguments)
{
    char text[128];
    bool is_container = is(arguments, 0, "client") || is(arguments, 0, "acl");

    if (has_nul(arguments, 0)) {
        snprintf(text, sizeof text, "-ERR unknown command '%s', with args beginning with: ", arguments->list[0].data);
        refuse(model, text);
        reply(model, "'x' \r\n");
    } else if (is_container && has_nul(arguments, 1)) {
        snprintf(text, sizeof text, "-ERR unknown subcommand '%s'. Try %s HELP.\r\n", arguments->list[1].data,
                 is(arguments, 0, "acl") ? "ACL" : "CLIENT");
        refuse(model, text);
    } else {
        return false;
    }
    return true;
}

/* Those that a transaction does not queue, and the others. */
static void execute(struct model *model, const struct arguments *arguments)
{
    if (model->is_reference && refuse_names(model, arguments)) {
        return;
    }
    if (is(arguments, 0, "quit")) {
        model->closing = true;
        reply(model, "+OK\r\n");
    } else if (is(arguments, 0, "decr")) {
        /* The target's policy never lets it through. */
        refuse(model, MODEL_REFUSAL);
    } else if (model->transaction && names_somebody(arguments)) {
        refuse(model, "-ERR Command not allowed inside a transaction\r\n");
    } else if (is(arguments, 0, "nosuch") || is(arguments, 0, "refused-by-headgate")) {
        refuse(model, "-ERR unknown command 'NOSUCH', with args beginning with: \r\n");
    } else if (has_bad_arity(arguments)) {
        refuse_arity(model, is(arguments, 0, "exec"));
    } else if (model->channels != 0 && model->resp == 2 && !may_run_subscribed(arguments)) {
        refuse(model, "-ERR Can't execute this command: only (P|S)SUBSCRIBE and the like are allowed\r\n");
    } else if (is(arguments, 0, "multi")) {
        run_multi(model);
    } else if (is(arguments, 0, "exec")) {
        run_exec(model);
    } else if (is(arguments, 0, "discard")) {
        run_discard(model);
    } else if (is(arguments, 0, "reset")) {
        run_reset(model);
    } else if (is(arguments, 0, "watch") && model->transaction) {
        reply(model, "-ERR WATCH inside MULTI is not allowed\r\n");
    } else if (model->transaction) {
        queue(model, arguments);
    } else {
        run(model, arguments);
    }
}

/* CLIENT REPLY silences all but what has to do with channels; RESET ends CLIENT REPLY OFF before it answers. */
static void take_command(struct model *model, struct arguments *arguments)
{
    take_by_its_own_name(arguments);
    size_t before = model->output.length;
    bool heard = (is(arguments, 0, "subscribe") || is(arguments, 0, "unsubscribe")) &&
                 !(model->is_reference && has_nul(arguments, 0));
    bool blocked_before = model->blocked;

    model->skipping = model->skip_next;
    model->skip_next = false;
    execute(model, arguments);
    if ((model->silent || model->skipping) && !heard) {
        model->output.length = before;
    }
    if (model->blocked && !blocked_before) {
        /* Where nobody would hear the end of it, it has none. */
        model->blocked = !(model->silent || model->skipping);
    }
}

static struct arguments arguments_of(struct slice frame)
{
    struct arguments arguments = {.frame = frame};
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;

    while (resp_walk_next(&walk, &argument)) {
        if (arguments.count < MODEL_ARGUMENTS) {
            arguments.list[arguments.count] = argument;
        }
        arguments.count++;
    }
    return arguments;
}

static void take_commands(struct model *model)
{
    size_t done = 0;
    size_t taken;

    while (!model->blocked && !model->closing && done < model->input.length) {
        const char *frame = model->input.data + done;
        resp_command_reset(&model->framed);
        enum resp_status status =
            resp_command_feed(&model->framed, frame, model->input.length - done, BULK_MAX, &taken);
        if (status == RESP_MORE) {
            break;
        }
        if (status == RESP_FAULT) {
            model->closing = true;
            break;
        }
        struct arguments arguments = {0};
        if (!resp_command_is_inline(&model->framed)) {
            arguments = arguments_of((struct slice){frame, (size_t)model->framed.size});
        }
        if (arguments.count > 0) {
            take_command(model, &arguments);
        } else {
            model->skip_next = false;
        }
        done += taken;
    }
    bytes_drop(&model->input, done);
}

/* ---- life ---- */

void model_init(struct model *model, bool is_reference)
{
    *model = (struct model){.resp = 2, .user = "default", .is_reference = is_reference, .blocks = !is_reference};
}

void model_free(struct model *model)
{
    forget_transaction(model);
    bytes_free(&model->input);
    bytes_free(&model->output);
}

void model_feed(struct model *model, const char *data, size_t length)
{
    bytes_add(&model->input, data, length);
    take_commands(model);
}

void model_unblock(struct model *model)
{
    if (model->blocked) {
        model->blocked = false;
        reply(model, model->resp == 3 ? "_\r\n" : "*-1\r\n");
        take_commands(model);
    }
}
