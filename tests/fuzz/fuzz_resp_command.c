/*
 * Fuzzes the framing of commands. What must hold for any bytes:
 *
 * - However they are cut, the framer comes to the same.
 * - hiredis' reader is the oracle for commands in multibulk form. Where it finds a whole array of bulks, the framer
 *   finds a command of the same length and arguments, at the same places; where the framer finds one, so does hiredis.
 * - The walk over a whole command gives just its arguments and ends where it ends.
 * - What an inline command is turned into is a command, of just the size announced.
 *
 * They differ on purpose in this, and in nothing else:
 * - hiredis skips the two bytes behind a bulk whatever they are; the framer demands CR LF.
 * - To hiredis a bulk may be null or of any length, and an array may hold anything: Redis and the framer refuse that.
 * - A command of a negative count is empty; to hiredis it is null (-1) or an error.
 * - hiredis 0.14 knows no NUL that hides the end of a line, and takes a CR that no LF follows for a part of the line.
 *   Neither can be in a number, so what it takes is not affected.
 */
#include <stdint.h>
#include <string.h>

#include "fuzz_framer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BULK_MAX ((uint64_t)512 * 1024 * 1024)

/* ---- the framer ---- */

static enum resp_status feed(void *framer, const char *bytes, size_t length, size_t *taken)
{
    struct resp_command *command = framer;
    uint32_t seen = resp_command_arguments_seen(command);
    uint64_t before = command->size;
    enum resp_status status = resp_command_feed(command, bytes, length, BULK_MAX, taken);

    require(resp_command_arguments_seen(command) >= seen && command->size == before + *taken);
    return status;
}

static void require_alike(const struct resp_command *a, const struct resp_command *b)
{
    require(a->phase == b->phase && a->fault == b->fault && a->unexpected == b->unexpected);
    require(a->argument_count == b->argument_count && a->arguments_left == b->arguments_left);
    for (size_t i = 0; i < RESP_ARGUMENTS_KEPT; i++) {
        require(a->arguments[i].offset == b->arguments[i].offset && a->arguments[i].length == b->arguments[i].length);
    }
}

static enum resp_status feed_every_way(struct resp_command *whole, const char *data, size_t size)
{
    static const size_t longest[] = {1, 3, 17, 200};
    size_t taken;
    enum resp_status status = feed_copy(feed, whole, data, size, &taken);

    require(taken == whole->size && taken <= size);
    require(status != RESP_MORE || taken == size);
    require((status == RESP_FAULT) == (whole->fault != RESP_COMMAND_SOUND));
    for (size_t i = 0; i < sizeof(longest) / sizeof(longest[0]); i++) {
        struct resp_command command = {0};

        require(feed_cut(feed, &command, data, size, longest[i]) == status);
        require_alike(&command, whole);
        /* An endless inline command is refused as a whole piece, so how much was taken depends on the pieces. */
        require(whole->fault == RESP_COMMAND_LONG_INLINE || command.size == whole->size);
    }
    return status;
}

static void check_text(const struct resp_command *command)
{
    char text[128];
    size_t length = resp_command_fault_text(command, text, sizeof(text));

    require(length < sizeof(text) && strlen(text) == length);
    require(strchr(text, '\r') == text + length - 2 && strchr(text, '\n') == text + length - 1);
}

/* ---- the oracle ---- */

struct oracle {
    redisReader *reader;
    enum resp_status status;
    size_t taken;
    bool plain;           /* an array of bulks, at least one and none of them null … */
    bool bulk_ends_wrong; /* … but for one that does not end in CR LF */
    size_t count;         /* of bulks */
    struct resp_argument bulks[RESP_ARGUMENTS_KEPT];
};

static void *read_string(const redisReadTask *task, char *text, size_t length)
{
    struct oracle *oracle = task->privdata;

    if (task->type != REDIS_REPLY_STRING || task->parent == NULL || task->parent->parent != NULL) {
        oracle->plain = false;
        return &object;
    }
    if (memcmp(text + length, "\r\n", 2) != 0) {
        oracle->bulk_ends_wrong = true;
    }
    if (oracle->count < RESP_ARGUMENTS_KEPT) {
        oracle->bulks[oracle->count] = (struct resp_argument){(uint64_t)(text - oracle->reader->buf), length};
    }
    oracle->count++;
    return &object;
}

static void *read_array(const redisReadTask *task, int elements)
{
    struct oracle *oracle = task->privdata;

    oracle->plain = task->parent == NULL && elements > 0;
    return &object;
}

static void *read_integer(const redisReadTask *task, long long value)
{
    struct oracle *oracle = task->privdata;

    (void)value;
    oracle->plain = false;
    return &object;
}

static void *read_nil(const redisReadTask *task)
{
    struct oracle *oracle = task->privdata;

    oracle->plain = false;
    return &object;
}

static struct oracle ask_hiredis(const char *data, size_t size)
{
    static redisReplyObjectFunctions functions = {read_string, read_array, read_integer, read_nil, forget};
    redisReader *reader = redisReaderCreateWithFunctions(&functions);
    struct oracle oracle = {.reader = reader, .status = RESP_MORE};

    require(reader != NULL);
    reader->privdata = &oracle;
    oracle.status = read_by_hiredis(reader, data, size, &oracle.taken);
    redisReaderFree(reader);
    return oracle;
}

static void compare(const struct resp_command *command, enum resp_status status, const struct oracle *oracle)
{
    bool found = status == RESP_DONE && command->argument_count > 0;

    if (oracle->status != RESP_DONE || !oracle->plain) {
        require(!found);
        return;
    }
    if (oracle->bulk_ends_wrong) {
        require(status == RESP_FAULT);
        return;
    }
    require(found && command->size == oracle->taken && command->argument_count == oracle->count);
    for (size_t i = 0; i < RESP_ARGUMENTS_KEPT && i < oracle->count; i++) {
        require(command->arguments[i].offset == oracle->bulks[i].offset);
        require(command->arguments[i].length == oracle->bulks[i].length);
    }
}

/* ---- what is done with a whole command ---- */

static void check_walk(const struct resp_command *command, const char *data)
{
    struct slice frame = {data, (size_t)command->size};
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;
    uint32_t count = 0;

    while (resp_walk_next(&walk, &argument)) {
        require(argument.data > data && argument.data + argument.length + 2 <= data + frame.length);
        if (count < RESP_ARGUMENTS_KEPT) {
            require(argument.data == data + command->arguments[count].offset);
            require(argument.length == command->arguments[count].length);
        }
        count++;
    }
    require(count == command->argument_count);
    require(count == 0 || walk.next == data + frame.length);
}

static void check_inline(const struct resp_command *command, const char *data)
{
    struct slice line = {data, (size_t)command->size};
    size_t length = resp_inline_to_multibulk(line, NULL, 0);
    struct resp_command multibulk = {0};
    char *out;

    require((length == 0) == (command->argument_count == 0));
    if (length == 0 || length == SIZE_MAX) {
        return;
    }
    out = malloc(length);
    require(out != NULL);
    require(resp_inline_to_multibulk(line, out, length) == length);
    require(feed_every_way(&multibulk, out, length) == RESP_DONE && multibulk.size == length);
    require(multibulk.argument_count > 0);
    check_walk(&multibulk, out);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *next = (const char *)data;
    enum resp_status status = RESP_DONE;

    while (status == RESP_DONE && size > 0) {
        struct resp_command command = {0};

        status = feed_every_way(&command, next, size);
        if (status == RESP_FAULT) {
            check_text(&command);
        }
        if (*next == '*') {
            struct oracle oracle = ask_hiredis(next, size);

            compare(&command, status, &oracle);
        }
        if (status == RESP_DONE && resp_command_is_inline(&command)) {
            check_inline(&command, next);
        } else if (status == RESP_DONE) {
            check_walk(&command, next);
        }
        next += command.size;
        size -= (size_t)command.size;
    }
    return 0;
}
