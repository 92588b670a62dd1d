#include "resp/resp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "resp/resp_number.h"

/* "*2147483647\r\n" or "$18446744073709551615\r\n", and the NUL that snprintf wants room for. */
#define HEADER_MAX 24

static enum resp_status refuse(struct resp_command *command, enum resp_command_fault fault)
{
    command->fault = fault;
    return RESP_FAULT;
}

static void keep_place(struct resp_command *command, uint32_t index, uint64_t offset, uint64_t length)
{
    if (index < RESP_ARGUMENTS_KEPT) {
        command->arguments[index].offset = offset;
        command->arguments[index].length = length;
    }
}

/* The command ends here. The phase is that of a fresh start however the bytes came. */
static enum resp_status finish(struct resp_command *command)
{
    command->phase = RESP_COMMAND_START;
    return RESP_DONE;
}

/*
 * Takes as many bulks as lie whole between next and end, and returns where the first byte lies that it did not take:
 * always a place where '$' should stand. What is odd in any way is left to the careful path.
 */
static inline const char *take_whole_bulks(struct resp_command *command, const char *next, const char *end,
                                           uint64_t bulk_max)
{
    const char *first = next;
    uint64_t size = command->size;
    uint32_t left = command->arguments_left;
    uint32_t index = command->argument_count - left;

    while (left > 0 && next < end && *next == '$') {
        uint32_t length = 0;
        const char *payload = resp_number_quick(next + 1, end, &length);

        if (payload == NULL || length > bulk_max || end - payload < (ptrdiff_t)length + 2 || payload[length] != '\r' ||
            payload[length + 1] != '\n') {
            break;
        }
        keep_place(command, index, size + (uint64_t)(payload - first), length);
        index++;
        left--;
        next = payload + length + 2;
    }
    command->arguments_left = left;
    command->size = size + (uint64_t)(next - first);
    return next;
}

/* ---- the careful path: a frame cut anywhere ---- */

static enum resp_status start_number(struct resp_command *command, enum resp_command_phase phase)
{
    command->phase = phase;
    command->line_length = 1;
    command->number = 0;
    command->digits = 0;
    command->negative = false;
    return RESP_MORE;
}

/* As in Redis, a wrong number is only refused at its CR, and a NUL hides every CR behind it. */
static enum resp_status take_number_byte(struct resp_command *command, char byte, enum resp_command_fault too_long)
{
    if (++command->line_length > RESP_LINE_MAX) {
        return refuse(command, too_long);
    }
    command->has_nul = command->has_nul || byte == '\0';
    resp_number_take(byte, &command->number, &command->digits, &command->negative);
    return RESP_MORE;
}

static enum resp_status end_count(struct resp_command *command)
{
    int64_t count;

    if (!resp_number_end(command->number, command->digits, command->negative, &count) || count > RESP_ARGUMENTS_MAX) {
        return refuse(command, RESP_COMMAND_BAD_COUNT);
    }
    command->argument_count = count > 0 ? (uint32_t)count : 0;
    command->arguments_left = command->argument_count;
    command->phase = RESP_COMMAND_COUNT_LF;
    return RESP_MORE;
}

static enum resp_status end_length(struct resp_command *command, uint64_t bulk_max)
{
    int64_t length;

    if (!resp_number_end(command->number, command->digits, command->negative, &length) || length < 0 ||
        (uint64_t)length > bulk_max) {
        return refuse(command, RESP_COMMAND_BAD_LENGTH);
    }
    command->payload_left = (uint64_t)length;
    keep_place(command, resp_command_arguments_seen(command), command->size + 2, (uint64_t)length);
    command->phase = RESP_COMMAND_LENGTH_LF;
    return RESP_MORE;
}

static enum resp_status expect(struct resp_command *command, char byte, char expected, enum resp_command_phase next)
{
    if (byte != expected) {
        return refuse(command, RESP_COMMAND_BAD_TERMINATOR);
    }
    command->phase = next;
    return RESP_MORE;
}

static enum resp_status expect_end(struct resp_command *command, char byte)
{
    enum resp_status status = expect(command, byte, '\n', RESP_COMMAND_BULK);

    return status == RESP_MORE && command->arguments_left == 0 ? finish(command) : status;
}

static enum resp_status take_byte(struct resp_command *command, char byte, uint64_t bulk_max)
{
    bool line_ends = byte == '\r' && !command->has_nul;

    switch (command->phase) {
    case RESP_COMMAND_START:
        return start_number(command, RESP_COMMAND_COUNT);
    case RESP_COMMAND_COUNT:
        return line_ends ? end_count(command) : take_number_byte(command, byte, RESP_COMMAND_LONG_COUNT);
    case RESP_COMMAND_COUNT_LF:
        return expect_end(command, byte);
    case RESP_COMMAND_BULK:
        if (byte != '$') {
            command->unexpected = byte;
            return refuse(command, RESP_COMMAND_NO_BULK);
        }
        return start_number(command, RESP_COMMAND_LENGTH);
    case RESP_COMMAND_LENGTH:
        return line_ends ? end_length(command, bulk_max) : take_number_byte(command, byte, RESP_COMMAND_LONG_LENGTH);
    case RESP_COMMAND_LENGTH_LF:
        return expect(command, byte, '\n', command->payload_left > 0 ? RESP_COMMAND_PAYLOAD : RESP_COMMAND_PAYLOAD_CR);
    case RESP_COMMAND_PAYLOAD_CR:
        return expect(command, byte, '\r', RESP_COMMAND_PAYLOAD_LF);
    default: /* RESP_COMMAND_PAYLOAD_LF; payloads and inline commands are not taken byte by byte */
        command->arguments_left -= byte == '\n';
        return expect_end(command, byte);
    }
}

static const char *take_payload(struct resp_command *command, const char *next, const char *end)
{
    uint64_t given = (uint64_t)(end - next);
    uint64_t length = given < command->payload_left ? given : command->payload_left;

    command->size += length;
    command->payload_left -= length;
    if (command->payload_left == 0) {
        command->phase = RESP_COMMAND_PAYLOAD_CR;
    }
    return next + length;
}

static bool is_blank(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static bool all_blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!is_blank(text[i])) {
            return false;
        }
    }
    return true;
}

/* The LF that ends the inline command, or NULL. A NUL hides every LF behind it, as in Redis. */
static const char *find_inline_end(struct resp_command *command, const char *next, size_t length)
{
    const char *line_feed = memchr(next, '\n', length);
    size_t before = line_feed == NULL ? length : (size_t)(line_feed - next);

    command->has_nul = command->has_nul || memchr(next, '\0', before) != NULL;
    return command->has_nul ? NULL : line_feed;
}

/* While the line is under way, its one argument stands for "there is more than blanks". */
static enum resp_status take_inline(struct resp_command *command, const char **next, const char *end)
{
    size_t given = (size_t)(end - *next);
    size_t room = RESP_LINE_MAX + 1 - command->line_length;
    size_t length = given < room ? given : room;
    const char *line_feed = find_inline_end(command, *next, length);
    size_t taken = line_feed == NULL ? length : (size_t)(line_feed - *next);

    if (command->argument_count == 0 && !all_blank(*next, taken)) {
        command->argument_count = command->arguments_left = 1;
    }
    command->line_length += (uint32_t)taken;
    if (command->line_length > RESP_LINE_MAX) {
        return refuse(command, RESP_COMMAND_LONG_INLINE);
    }
    taken += line_feed != NULL;
    command->size += taken;
    *next += taken;
    if (line_feed == NULL) {
        return RESP_MORE;
    }
    command->arguments_left = 0;
    return RESP_DONE;
}

/* Takes at least one byte, unless it finds a fault. There is at least one. */
static enum resp_status take_some(struct resp_command *command, const char **next, const char *end, uint64_t bulk_max)
{
    enum resp_status status;

    if (command->phase == RESP_COMMAND_START && **next != '*') {
        command->phase = RESP_COMMAND_INLINE;
    }
    if (command->phase == RESP_COMMAND_INLINE) {
        return take_inline(command, next, end);
    }
    if (command->phase == RESP_COMMAND_PAYLOAD) {
        *next = take_payload(command, *next, end);
        return RESP_MORE;
    }
    if (command->phase == RESP_COMMAND_BULK) {
        const char *before = *next;

        *next = take_whole_bulks(command, before, end, bulk_max);
        if (*next != before) {
            return command->arguments_left == 0 ? finish(command) : RESP_MORE;
        }
    }
    status = take_byte(command, **next, bulk_max);
    if (status != RESP_FAULT) {
        ++*next;
        command->size++;
    }
    return status;
}

static enum resp_status feed_carefully(struct resp_command *command, const char *next, const char *end,
                                       uint64_t bulk_max, size_t *taken)
{
    const char *first = next;
    enum resp_status status = command->fault == RESP_COMMAND_SOUND ? RESP_MORE : RESP_FAULT;

    while (status == RESP_MORE && next < end) {
        status = take_some(command, &next, end, bulk_max);
    }
    *taken += (size_t)(next - first);
    return status;
}

enum resp_status resp_command_feed(struct resp_command *command, const char *data, size_t length, uint64_t bulk_max,
                                   size_t *taken)
{
    const char *next = data;
    const char *end = data + length;

    if (command->phase == RESP_COMMAND_START && length > 0 && *data == '*') {
        uint32_t count = 0;
        const char *bulks = resp_number_quick(data + 1, end, &count);

        if (bulks != NULL && count > 0) {
            command->argument_count = count;
            command->arguments_left = count;
            command->size = (uint64_t)(bulks - data);
            next = take_whole_bulks(command, bulks, end, bulk_max);
            if (command->arguments_left == 0) {
                *taken = (size_t)(next - data);
                return RESP_DONE;
            }
            command->phase = RESP_COMMAND_BULK;
        }
    }
    *taken = (size_t)(next - data);
    return feed_carefully(command, next, end, bulk_max, taken);
}

bool resp_command_foresee(const struct resp_command *command, uint64_t *size)
{
    /* Beside payload, of an argument whose length was read. */
    static const uint8_t line_ends_left[] = {[RESP_COMMAND_LENGTH_LF] = 3,
                                             [RESP_COMMAND_PAYLOAD] = 2,
                                             [RESP_COMMAND_PAYLOAD_CR] = 2,
                                             [RESP_COMMAND_PAYLOAD_LF] = 1,
                                             [RESP_COMMAND_INLINE] = 0};
    uint8_t line_ends = line_ends_left[command->phase];

    *size = command->size + command->payload_left + line_ends;
    return command->arguments_left == (line_ends > 0 ? 1 : 0);
}

size_t resp_command_fault_text(const struct resp_command *command, char *text, size_t size)
{
    static const char *const texts[] = {
        [RESP_COMMAND_SOUND] = "no fault",
        [RESP_COMMAND_BAD_COUNT] = "invalid multibulk length",
        [RESP_COMMAND_LONG_COUNT] = "too big mbulk count string",
        [RESP_COMMAND_BAD_LENGTH] = "invalid bulk length",
        [RESP_COMMAND_LONG_LENGTH] = "too big bulk count string",
        [RESP_COMMAND_NO_BULK] = "expected '$', got '",
        [RESP_COMMAND_LONG_INLINE] = "too big inline request",
        [RESP_COMMAND_BAD_QUOTES] = "unbalanced quotes in request",
        [RESP_COMMAND_BAD_TERMINATOR] = "expected CR LF",
        [RESP_COMMAND_STRANGERS_COUNT] = "unauthenticated multibulk length",
        [RESP_COMMAND_STRANGERS_LENGTH] = "unauthenticated bulk length",
    };
    char got[3] = "";
    int length;

    if (command->fault == RESP_COMMAND_NO_BULK) {
        char byte = command->unexpected;

        /* An error is one line: Redis, too, writes a blank for what would end it. */
        got[0] = byte == '\0' || byte == '\r' || byte == '\n' ? ' ' : byte;
        got[1] = '\'';
    }
    length = snprintf(text, size, "-ERR Protocol error: %s%s\r\n", texts[command->fault], got);
    return length < 0 ? 0 : (size_t)length;
}

/* ---- walking a command ---- */

/* More digits are no number of a command. */
#define WALK_DIGITS 19

/* Takes a mark, digits, CR and LF. */
static inline bool walk_line(struct resp_walk *walk, char mark, uint64_t *number)
{
    if (walk->end - walk->next < 4 || *walk->next != mark) {
        return false;
    }
    const char *first = walk->next + 1, *at = first, *last = walk->end - 2;
    unsigned digit;

    *number = 0;
    for (; at < last && (digit = (unsigned)(*at - '0')) <= 9; at++) {
        *number = *number * 10 + digit;
    }
    if (at == first || at - first > WALK_DIGITS || memcmp(at, "\r\n", 2) != 0) {
        return false;
    }
    walk->next = at + 2;
    return true;
}

struct resp_walk resp_walk_start(struct slice frame)
{
    struct resp_walk walk = {.next = frame.data, .end = frame.data};
    uint64_t count;

    if (frame.length > 0) {
        walk.end += frame.length;
        walk.left = walk_line(&walk, '*', &count) && count <= RESP_ARGUMENTS_MAX ? (uint32_t)count : 0;
    }
    return walk;
}

bool resp_walk_part(struct resp_walk *walk, struct slice *argument, uint64_t *length)
{
    if (walk->left == 0 || !walk_line(walk, '$', length)) {
        walk->left = 0;
        return false;
    }
    uint64_t there = (uint64_t)(walk->end - walk->next);
    *argument = (struct slice){walk->next, *length < there ? *length : there};
    walk->next += *length + 2 < there ? *length + 2 : there;
    walk->left--;
    return true;
}

bool resp_walk_next(struct resp_walk *walk, struct slice *argument)
{
    uint64_t length;

    if (walk->left == 0 || !walk_line(walk, '$', &length) || length + 2 > (uint64_t)(walk->end - walk->next)) {
        walk->left = 0;
        return false;
    }
    *argument = (struct slice){walk->next, length};
    walk->next += length + 2;
    walk->left--;
    return true;
}

bool resp_walk_skip(struct resp_walk *walk, uint64_t count)
{
    struct slice passed_over;

    while (count > 0 && resp_walk_next(walk, &passed_over)) {
        count--;
    }
    return count == 0;
}

/* ---- inline commands ---- */

/* What is left of an inline command. It ends before end, or at a NUL as in Redis. */
struct line {
    const char *next;
    const char *end;
};

/* The byte so far ahead; NUL behind the end. */
static char look(const struct line *line, ptrdiff_t ahead)
{
    return line->end - line->next > ahead ? line->next[ahead] : '\0';
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    digit = (char)(digit | 0x20);
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static char escaped(char letter)
{
    switch (letter) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'b':
        return '\b';
    case 'a':
        return '\a';
    default:
        return letter;
    }
}

/* One byte between quotes, which may be written as an escape. */
static char take_quoted_byte(struct line *line, char quote)
{
    char first = look(line, 0);
    char second = look(line, 1);
    int high = hex_value(look(line, 2));
    int low = high < 0 ? -1 : hex_value(look(line, 3));

    if (first != '\\' || second == '\0' || (quote == '\'' && second != '\'')) {
        line->next++;
        return first;
    }
    if (quote == '"' && second == 'x' && low >= 0) {
        line->next += 4;
        return (char)(high * 16 + low);
    }
    line->next += 2;
    return quote == '"' ? escaped(second) : second;
}

static void put(char *out, size_t *length, char byte)
{
    if (out != NULL) {
        out[*length] = byte;
    }
    ++*length;
}

/* Takes the rest of an argument from behind its opening quote. The closing one must be its end, too. */
static bool take_quoted(struct line *line, char quote, char *out, size_t *length)
{
    while (look(line, 0) != quote) {
        if (look(line, 0) == '\0') {
            return false;
        }
        put(out, length, take_quoted_byte(line, quote));
    }
    line->next++;
    return look(line, 0) == '\0' || is_blank(look(line, 0));
}

/* Takes an argument; writes it to out unless that is NULL. False: its quotes are unbalanced. */
static bool take_argument(struct line *line, char *out, size_t *length)
{
    *length = 0;
    for (;;) {
        char byte = look(line, 0);

        /* Vertical tab and form feed part arguments only where one could start: so it is in Redis. */
        if (byte == '\0' || byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n') {
            return true;
        }
        line->next++;
        if (byte == '"' || byte == '\'') {
            return take_quoted(line, byte, out, length);
        }
        put(out, length, byte);
    }
}

static bool skip_blanks(struct line *line)
{
    while (is_blank(look(line, 0))) {
        line->next++;
    }
    return look(line, 0) != '\0';
}

static size_t header(char *text, char type, size_t number)
{
    return (size_t)snprintf(text, HEADER_MAX, "%c%zu\r\n", type, number);
}

/* The length of the multibulk command without its first line, and the count of its arguments; SIZE_MAX: no command. */
static size_t measure_inline(struct line line, size_t *count)
{
    char text[HEADER_MAX];
    size_t total = 0;
    size_t length;

    *count = 0;
    while (skip_blanks(&line)) {
        if (!take_argument(&line, NULL, &length)) {
            return SIZE_MAX;
        }
        total += header(text, '$', length) + length + 2;
        ++*count;
    }
    return total;
}

static char *append(char *out, const char *text, size_t length)
{
    memcpy(out, text, length);
    return out + length;
}

size_t resp_inline_to_multibulk(struct slice text, char *out, size_t size)
{
    struct line line = {.next = text.data, .end = text.data + text.length};
    char head[HEADER_MAX];
    size_t count;
    size_t total = measure_inline(line, &count);
    size_t length;

    if (total == 0 || total == SIZE_MAX) {
        return total;
    }
    length = header(head, '*', count);
    total += length;
    if (total > size) {
        return total;
    }
    out = append(out, head, length);
    while (skip_blanks(&line)) {
        struct line again = line;

        take_argument(&again, NULL, &length);
        out = append(out, head, header(head, '$', length));
        take_argument(&line, out, &length);
        out = append(out + length, "\r\n", 2);
    }
    return total;
}
