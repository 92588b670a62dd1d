#include "resp/resp.h"

#include <string.h>

#include "resp/resp_number.h"

/* What Redis would never send, and what would make the sums overflow if it did. */
#define BULK_MAX ((int64_t)4 * 1024 * 1024 * 1024)
#define ELEMENTS_MAX ((uint64_t)1 << 40)

void resp_reply_reset(struct resp_reply *reply)
{
    reply->phase = RESP_REPLY_START;
    reply->type = '\0';
    reply->element = '\0';
    reply->negative = false;
    reply->digits = 0;
    reply->head_length = 0;
    reply->number = 0;
    reply->integer = 0;
    reply->payload_left = 0;
    reply->elements_left = 0;
    reply->size = 0;
}

/* A frame is one element, and what it holds is flattened: all of it has come when no element is left. */
static void end_element(struct resp_reply *reply)
{
    reply->elements_left--;
    reply->phase = RESP_REPLY_START;
}

/*
 * What lies behind an attribute is the reply that it describes. It is the only element left then, for it is counted
 * from the start while the attribute's own come and go.
 */
static void note_type(struct resp_reply *reply, char type)
{
    if (reply->type == '\0' || (reply->type == '|' && reply->elements_left == 1)) {
        reply->type = type;
    }
}

/* ---- the fast path: elements of the usual shapes that lie whole in the bytes given ---- */

static inline bool starts_with(const char *next, const char *end, const char *text, size_t length)
{
    return (size_t)(end - next) >= length && memcmp(next, text, length) == 0;
}

/* Returns where the bulk ends, NULL if it is none of the usual. */
static inline const char *whole_bulk(const char *next, const char *end)
{
    uint32_t length = 0;
    const char *payload = resp_number_quick(next + 1, end, &length);

    if (payload == NULL) {
        return starts_with(next, end, "$-1\r\n", 5) ? next + 5 : NULL;
    }
    if (end - payload < (ptrdiff_t)length + 2 || payload[length] != '\r' || payload[length + 1] != '\n') {
        return NULL;
    }
    return payload + length + 2;
}

/* Returns where the element ends, NULL if it is none of the usual. *inner: how many elements it holds. */
static inline const char *whole_element(struct resp_reply *reply, const char *next, const char *end, uint32_t *inner)
{
    const char *after;
    uint32_t number = 0;

    switch (*next) {
    case '$':
        return whole_bulk(next, end);
    case '+':
        return starts_with(next, end, "+OK\r\n", 5) ? next + 5 : NULL;
    case ':':
        after = resp_number_quick(next + 1, end, &number);
        if (after != NULL) {
            reply->integer = number;
        }
        return after;
    case '_':
        return starts_with(next, end, "_\r\n", 3) ? next + 3 : NULL;
    case '*':
        return resp_number_quick(next + 1, end, inner);
    default:
        return NULL;
    }
}

/* Returns where the first element starts that was not taken; none is left if the frame ends there. */
static inline const char *take_whole_elements(struct resp_reply *reply, const char *next, const char *end)
{
    uint64_t left = reply->elements_left;

    while (left > 0 && next < end) {
        uint32_t inner = 0;
        const char *after = whole_element(reply, next, end, &inner);

        if (after == NULL || left + inner > ELEMENTS_MAX) {
            break;
        }
        reply->elements_left = left;
        note_type(reply, *next);
        reply->element = *next;
        next = after;
        left += inner;
        left--;
    }
    reply->elements_left = left;
    return next;
}

/* ---- the careful path: a frame cut anywhere ---- */

static bool take_type(struct resp_reply *reply, char type)
{
    switch (type) {
    case '+':
    case '-':
    case '(':
    case ',':
    case '_':
    case '#':
        reply->phase = RESP_REPLY_LINE;
        break;
    case ':':
    case '$':
    case '!':
    case '=':
    case '*':
    case '~':
    case '%':
    case '>':
    case '|':
        reply->phase = RESP_REPLY_LENGTH;
        reply->number = 0;
        reply->digits = 0;
        reply->negative = false;
        break;
    default:
        return false;
    }
    note_type(reply, type);
    reply->element = type;
    return true;
}

static bool start_bulk(struct resp_reply *reply, int64_t length)
{
    if (length == -1 && reply->element == '$') {
        end_element(reply);
        return true;
    }
    if (length < 0 || length > BULK_MAX) {
        return false;
    }
    reply->payload_left = (uint64_t)length;
    reply->phase = length > 0 ? RESP_REPLY_PAYLOAD : RESP_REPLY_PAYLOAD_CR;
    return true;
}

static bool start_aggregate(struct resp_reply *reply, int64_t count)
{
    bool pairs = reply->element == '%' || reply->element == '|';

    if (count == -1 && reply->element == '*') {
        count = 0;
    }
    if (count < 0 || count > INT32_MAX) {
        return false;
    }
    reply->elements_left += (uint64_t)count * (pairs ? 2 : 1);
    if (reply->elements_left > ELEMENTS_MAX) {
        return false;
    }
    if (reply->element == '|') {
        reply->phase = RESP_REPLY_START;
    } else {
        end_element(reply);
    }
    return true;
}

static bool end_number(struct resp_reply *reply)
{
    int64_t number;

    if (!resp_number_end(reply->number, reply->digits, reply->negative, &number)) {
        return false;
    }
    switch (reply->element) {
    case ':':
        reply->integer = number;
        end_element(reply);
        return true;
    case '$':
    case '!':
    case '=':
        return start_bulk(reply, number);
    default:
        return start_aggregate(reply, number);
    }
}

static bool take_number_byte(struct resp_reply *reply, char byte)
{
    if (byte == '\r') {
        reply->phase = RESP_REPLY_LENGTH_LF;
        return true;
    }
    resp_number_take(byte, &reply->number, &reply->digits, &reply->negative);
    return reply->digits != RESP_NUMBER_NONE;
}

/* A CR that no LF follows is part of the line. */
static void take_line_feed(struct resp_reply *reply, char byte)
{
    if (byte == '\n') {
        end_element(reply);
    } else if (byte != '\r') {
        reply->phase = RESP_REPLY_LINE;
    }
}

static bool take_byte(struct resp_reply *reply, char byte)
{
    switch (reply->phase) {
    case RESP_REPLY_START:
        return take_type(reply, byte);
    case RESP_REPLY_LINE_LF:
        take_line_feed(reply, byte);
        return true;
    case RESP_REPLY_LENGTH:
        return take_number_byte(reply, byte);
    case RESP_REPLY_LENGTH_LF:
        return byte == '\n' && end_number(reply);
    case RESP_REPLY_PAYLOAD_CR:
        reply->phase = RESP_REPLY_PAYLOAD_LF;
        return byte == '\r';
    default: /* RESP_REPLY_PAYLOAD_LF; lines and payloads are not taken byte by byte */
        end_element(reply);
        return byte == '\n';
    }
}

static const char *take_line(struct resp_reply *reply, const char *next, const char *end)
{
    const char *carriage_return = memchr(next, '\r', (size_t)(end - next));

    if (carriage_return == NULL) {
        return end;
    }
    reply->phase = RESP_REPLY_LINE_LF;
    return carriage_return + 1;
}

static const char *take_payload(struct resp_reply *reply, const char *next, const char *end)
{
    uint64_t given = (uint64_t)(end - next);
    uint64_t length = given < reply->payload_left ? given : reply->payload_left;

    reply->payload_left -= length;
    if (reply->payload_left == 0) {
        reply->phase = RESP_REPLY_PAYLOAD_CR;
    }
    return next + length;
}

/* Takes up to the end of the frame, at most up to end. Returns where it stopped; *fault: at what. */
static const char *feed_carefully(struct resp_reply *reply, const char *next, const char *end, bool *fault)
{
    while (next < end && reply->elements_left > 0) {
        if (reply->phase == RESP_REPLY_LINE) {
            next = take_line(reply, next, end);
        } else if (reply->phase == RESP_REPLY_PAYLOAD) {
            next = take_payload(reply, next, end);
        } else if (take_byte(reply, *next)) {
            next++;
        } else {
            *fault = true;
            break;
        }
        if (reply->phase == RESP_REPLY_START) {
            next = take_whole_elements(reply, next, end);
        }
    }
    return next;
}

static void keep_head(struct resp_reply *reply, const char *data, size_t length)
{
    size_t room = RESP_HEAD_KEPT - (size_t)reply->head_length;
    size_t kept = length < room ? length : room;

    memcpy(reply->head + reply->head_length, data, kept);
    reply->head_length = (uint8_t)(reply->head_length + kept);
}

enum resp_status resp_reply_feed(struct resp_reply *reply, const char *data, size_t length, size_t *taken)
{
    const char *next = data;
    const char *end = data + length;
    bool fault = false;

    if (reply->size == 0) {
        reply->elements_left = 1;
    }
    if (reply->phase == RESP_REPLY_START) {
        next = take_whole_elements(reply, data, end);
    }
    if (reply->elements_left > 0) {
        next = feed_carefully(reply, next, end, &fault);
    }
    *taken = (size_t)(next - data);
    reply->size += *taken;
    if (reply->keep_head) {
        keep_head(reply, data, *taken);
    }
    if (fault) {
        return RESP_FAULT;
    }
    return reply->elements_left == 0 ? RESP_DONE : RESP_MORE;
}
