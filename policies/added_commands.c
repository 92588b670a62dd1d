/*
 * Commands that newer servers or their modules have, for those that lack them: what Redis gets in their place is a
 * script that does the same, so that they keep their order and work within transactions. Where the server has the
 * command it goes through as it is.
 *
 * CL.THROTTLE is redis-cell's (https://github.com/brandur/redis-cell), with its replies and errors; DELIFEQ is Valkey's
 * (https://valkey.io/commands/delifeq/), which articles on locks call DELIFEQUALS. That no server has.
 */
#include "policy/policy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ARGUMENTS_MAX 8

/* A request's arguments behind the name. */
struct arguments {
    size_t count; /* also of those beyond the maximum */
    struct slice slices[ARGUMENTS_MAX];
};

/* A command and what is said in its place. */
struct added_command {
    const char *name; /* in lower case */
    const char *script;
    /* Looks at the arguments, of which the first is the key, and adds what is missing. False: decision has the error.
     */
    bool (*check)(struct arguments *arguments, struct policy_decision *decision);
};

static bool fail(struct policy_decision *decision, const char *prefix, struct slice what)
{
    int shown = (int)(what.length > 128 ? 128 : what.length);
    char text[129];

    for (int i = 0; i < shown; i++) {
        text[i] = what.data[i];
        if (text[i] == '\r' || text[i] == '\n') {
            text[i] = ' ';
        }
    }
    decision->length =
        (size_t)snprintf(decision->text, sizeof decision->text, "-%s%.*s\r\n", prefix, shown, shown > 0 ? text : "");
    return false;
}

/* ---- CL.THROTTLE key max_burst count period [quantity] ---- */

#define CELL_ERROR "Cell error: Store error: "

/* As the module reads them: decimal digits with a sign before them, if any, of 64 bits. */
static bool read_integer(struct slice text, int64_t *value)
{
    bool negative = text.length > 0 && text.data[0] == '-';
    size_t start = text.length > 0 && (negative || text.data[0] == '+');

    *value = 0;
    for (size_t i = start; i < text.length; i++) {
        int64_t digit = text.data[i] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, negative ? -digit : digit, value)) {
            return false;
        }
    }
    return text.length > start;
}

static bool check_throttle(struct arguments *arguments, struct policy_decision *decision)
{
    static const struct slice one = {"1", 1};
    int64_t numbers[5] = {0};

    if (arguments->count < 4 || arguments->count > 5) {
        return fail(decision,
                    CELL_ERROR "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
                    (struct slice){0});
    }
    if (arguments->count == 4) {
        arguments->slices[arguments->count++] = one;
    }
    for (size_t i = 1; i < 5; i++) {
        if (!read_integer(arguments->slices[i], &numbers[i])) {
            return fail(decision, CELL_ERROR "Couldn't parse as integer: ", arguments->slices[i]);
        }
    }
    if (numbers[2] == 0 || numbers[3] == 0) {
        return fail(decision, CELL_ERROR "Zero rates are not supported", (struct slice){0});
    }
    return true;
}

/* ---- DELIFEQ key value, and DELIFEQUALS key value ---- */

static bool check_delifequals(struct arguments *arguments, struct policy_decision *decision)
{
    if (arguments->count != 2) {
        return fail(decision, "ERR wrong number of arguments for 'delifequals' command", (struct slice){0});
    }
    return true;
}

static bool check_delifeq(struct arguments *arguments, struct policy_decision *decision)
{
    if (arguments->count != 2) {
        return fail(decision, "ERR wrong number of arguments for 'delifeq' command", (struct slice){0});
    }
    return true;
}

static const struct added_command added_commands[] = {
    {"cl.throttle", "throttle", check_throttle},
    {"delifeq", "delifeq", check_delifeq},
    {"delifequals", "delifeq", check_delifequals},
};

#define ADDED_COUNT (sizeof added_commands / sizeof added_commands[0])

/* ---- the frame that is sent ---- */

struct added {
    char *frame;
    size_t length, room;
};

/* False when memory is short. */
static bool add_bytes(struct added *added, const char *data, size_t length)
{
    if (added->room - added->length < length) {
        size_t room = (added->length + length) * 2;
        char *frame = realloc(added->frame, room);
        if (frame == NULL) {
            return false;
        }
        added->frame = frame;
        added->room = room;
    }
    memcpy(added->frame + added->length, data, length);
    added->length += length;
    return true;
}

static bool add_bulk(struct added *added, struct slice bulk)
{
    char head[32];
    int length = snprintf(head, sizeof head, "$%zu\r\n", bulk.length);

    return add_bytes(added, head, (size_t)length) && add_bytes(added, bulk.data, bulk.length) &&
           add_bytes(added, "\r\n", 2);
}

/* EVAL script 1 key arguments, whose last one says whether the script should try the command itself first. */
static bool write_eval(struct added *added, const struct script *script, const struct arguments *arguments,
                       bool try_native)
{
    char head[32];
    int length = snprintf(head, sizeof head, "*%zu\r\n", arguments->count + 4);

    added->length = 0;
    bool written = add_bytes(added, head, (size_t)length) && add_bulk(added, slice_of("EVAL")) &&
                   add_bulk(added, (struct slice){script->text, script->length}) && add_bulk(added, slice_of("1"));
    for (size_t i = 0; written && i < arguments->count; i++) {
        written = add_bulk(added, arguments->slices[i]);
    }
    return written && add_bulk(added, slice_of(try_native ? "try" : ""));
}

/* ---- hooks ---- */

static const struct added_command *find_added(struct slice name)
{
    for (size_t i = 0; i < ADDED_COUNT; i++) {
        if (slice_is_word(name, added_commands[i].name)) {
            return &added_commands[i];
        }
    }
    return NULL;
}

static void take_apart(const struct policy_request *request, struct arguments *arguments)
{
    struct resp_walk walk = resp_walk_start(request->frame);
    struct slice argument;

    *arguments = (struct arguments){0};
    (void)resp_walk_next(&walk, &argument);
    while (resp_walk_next(&walk, &argument)) {
        if (arguments->count < ARGUMENTS_MAX) {
            arguments->slices[arguments->count] = argument;
        }
        arguments->count++;
    }
}

static enum policy_translation added_translate(void *instance, const struct policy_request *request,
                                               enum policy_server_has server, struct slice *frame,
                                               struct policy_decision *decision)
{
    const struct added_command *command = find_added(request->name);
    struct added *added = instance;
    struct arguments arguments;

    if (command == NULL || server == POLICY_SERVER_HAS) {
        return POLICY_AS_IT_IS;
    }
    take_apart(request, &arguments);
    if (!command->check(&arguments, decision)) {
        return POLICY_ANSWERED;
    }
    if (!write_eval(added, script_find(command->script), &arguments, server == POLICY_SERVER_UNKNOWN)) {
        (void)fail(decision, "ERR headgate: out of memory", (struct slice){0});
        return POLICY_ANSWERED;
    }
    *frame = (struct slice){added->frame, added->length};
    return POLICY_TRANSLATED;
}

static bool added_translates(void *instance, const struct command *command)
{
    (void)instance;
    return command != NULL && find_added(slice_of(command->name)) != NULL;
}

static void *added_start(const struct policy_start *start)
{
    (void)start;
    return calloc(1, sizeof(struct added));
}

static void added_stop(void *instance)
{
    struct added *added = instance;

    free(added->frame);
    free(added);
}

static const struct policy_translator added_translator = {
    .translates = added_translates,
    .translate = added_translate,
};

const struct policy added_commands_policy = {
    .name = "added_commands",
    .translator = &added_translator,
    .start = added_start,
    .stop = added_stop,
};
