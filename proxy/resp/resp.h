/*
 * RESP framing: where a command or a reply ends, and where its first arguments lie.
 *
 * The framers skip lengths. They build no trees, copy no values, do no I/O, and never look at a byte twice: whoever
 * holds the bytes may forward and forget them while a frame is still under way. Each framer is a small struct; all
 * zeroes is "between two frames", and it is so again after RESP_DONE was taken by resp_*_reset().
 *
 * Protocol: https://redis.io/docs/latest/develop/reference/protocol-spec/ (RESP2, RESP3 and inline commands); limits
 * and error texts as in Redis 7.0 (networking.c: processMultibulkBuffer, processInlineBuffer).
 */
#ifndef HEADGATE_RESP_H
#define HEADGATE_RESP_H

#include "base/slice.h"

#include <stdint.h>

enum resp_status {
    RESP_MORE, /* every byte given was taken; the frame goes on */
    RESP_DONE, /* the frame ends with the last byte taken */
    RESP_FAULT /* these bytes are not RESP; the stream cannot be followed any further */
};

/* Redis closes on an inline command, or on the line of a count or length, that is longer than this. Bytes. */
#define RESP_LINE_MAX ((size_t)64 * 1024)
/* Redis refuses to read a command of more arguments. */
#define RESP_ARGUMENTS_MAX INT32_MAX
/* How many leading arguments a command framer remembers the place of: name, subcommand, and two to tell options by. */
#define RESP_ARGUMENTS_KEPT 4

enum resp_command_fault {
    RESP_COMMAND_SOUND,
    RESP_COMMAND_BAD_COUNT,      /* invalid multibulk length */
    RESP_COMMAND_LONG_COUNT,     /* too big mbulk count string */
    RESP_COMMAND_BAD_LENGTH,     /* invalid bulk length */
    RESP_COMMAND_LONG_LENGTH,    /* too big bulk count string */
    RESP_COMMAND_NO_BULK,        /* expected '$', got '%c' */
    RESP_COMMAND_LONG_INLINE,    /* too big inline request */
    RESP_COMMAND_BAD_QUOTES,     /* unbalanced quotes in request */
    RESP_COMMAND_BAD_TERMINATOR, /* a line or bulk that does not end in CR LF */
    /* Sound, but too long for a client that has not authenticated. Set by who knows: */
    RESP_COMMAND_STRANGERS_COUNT, /* unauthenticated multibulk length */
    RESP_COMMAND_STRANGERS_LENGTH /* unauthenticated bulk length */
};

enum resp_command_phase {
    RESP_COMMAND_START,
    RESP_COMMAND_COUNT, /* after '*' */
    RESP_COMMAND_COUNT_LF,
    RESP_COMMAND_BULK,   /* '$' is next */
    RESP_COMMAND_LENGTH, /* after '$' */
    RESP_COMMAND_LENGTH_LF,
    RESP_COMMAND_PAYLOAD,
    RESP_COMMAND_PAYLOAD_CR,
    RESP_COMMAND_PAYLOAD_LF,
    RESP_COMMAND_INLINE
};

struct resp_argument {
    uint64_t offset; /* from the first byte of the frame */
    uint64_t length; /* bytes */
};

struct resp_command {
    enum resp_command_phase phase;
    enum resp_command_fault fault;
    char unexpected; /* the byte in place of '$', for RESP_COMMAND_NO_BULK */
    bool negative;
    uint8_t digits;          /* of the number being read; 255 marks a number that is none */
    bool has_nul;            /* an inline command with a NUL in it never ends, as in Redis */
    uint32_t line_length;    /* bytes of the unfinished line */
    uint32_t argument_count; /* announced; 0 after RESP_DONE: nothing to run (an empty line, "*0", "*-1") */
    uint32_t arguments_left;
    uint64_t number;       /* being read */
    uint64_t payload_left; /* bytes of the current bulk still to come, without CR LF */
    uint64_t size;         /* bytes of the frame taken so far */
    struct resp_argument arguments[RESP_ARGUMENTS_KEPT];
};

/*
 * Takes bytes up to the end of the command, at most length of them. *taken says how many (also on RESP_FAULT, where it
 * points at or before the offence). bulk_max: bytes, the longest argument allowed (Redis: proto-max-bulk-len).
 * An inline command is RESP_DONE after its LF with argument_count 1 if it holds anything but blanks (0 if not);
 * resp_inline_arguments() takes it apart.
 */
enum resp_status resp_command_feed(struct resp_command *command, const char *data, size_t length, uint64_t bulk_max,
                                   size_t *taken);

static inline bool resp_command_is_inline(const struct resp_command *command)
{
    return command->phase == RESP_COMMAND_INLINE;
}

/* Makes ready for the next command. */
static inline void resp_command_reset(struct resp_command *command)
{
    command->phase = RESP_COMMAND_START;
    command->fault = RESP_COMMAND_SOUND;
    command->unexpected = '\0';
    command->negative = false;
    command->digits = 0;
    command->has_nul = false;
    command->line_length = 0;
    command->argument_count = 0;
    command->arguments_left = 0;
    command->number = 0;
    command->payload_left = 0;
    command->size = 0;
    for (size_t i = 0; i < RESP_ARGUMENTS_KEPT; i++) {
        command->arguments[i] = (struct resp_argument){0};
    }
}

/* How many arguments have been seen whole so far (while a command is under way, or after RESP_DONE). */
static inline uint32_t resp_command_arguments_seen(const struct resp_command *command)
{
    return command->argument_count - command->arguments_left;
}

/* Bytes of a payload that are still to come, when nothing but payload comes next. */
static inline uint64_t resp_command_payload_left(const struct resp_command *command)
{
    return command->phase == RESP_COMMAND_PAYLOAD ? command->payload_left : 0;
}

/* The length of the argument that is under way, as announced; 0 if none is, or its length was not read yet. */
static inline uint64_t resp_command_argument_length(const struct resp_command *command)
{
    return command->phase >= RESP_COMMAND_LENGTH_LF && command->phase <= RESP_COMMAND_PAYLOAD_LF ? command->number : 0;
}

/*
 * The bytes of the frame that can be foreseen once its count was read: what was taken, and the rest of the argument
 * that is under way. True: that is all of it; false: further arguments come, whose lengths are not known yet.
 */
bool resp_command_foresee(const struct resp_command *command, uint64_t *size);

/* Counts bytes of that payload as taken, fewer than are left, that went another way. */
static inline void resp_command_skip(struct resp_command *command, uint64_t length)
{
    command->payload_left -= length;
    command->size += length;
}

/* Writes Redis' error text for the fault, with "-ERR Protocol error: " before and CR LF behind; returns its length,
 * which is below size (128 is enough). */
size_t resp_command_fault_text(const struct resp_command *command, char *text, size_t size);

/* Walks the arguments of a command in multibulk form, which may end anywhere. Slices point into the frame. */
struct resp_walk {
    const char *next;
    const char *end;
    uint32_t left; /* arguments */
};

/* None are left if the frame is empty, inline or not sound. */
struct resp_walk resp_walk_start(struct slice frame);
/* The next argument, as far as it is there, and the length of the whole; false after the last, and where none begins or
 * the frame is not sound: then none is left. */
bool resp_walk_part(struct resp_walk *walk, struct slice *argument, uint64_t *length);
/* The next argument that is there whole; false as above. */
bool resp_walk_next(struct resp_walk *walk, struct slice *argument);
/* Passes over so many; false if there are not so many. */
bool resp_walk_skip(struct resp_walk *walk, uint64_t count);

/*
 * Takes an inline command apart as Redis' sdssplitargs does (quotes, escapes) and writes it as a multibulk command to
 * out. Returns the bytes that this takes, which may exceed size: then nothing useful was written and the call has to be
 * repeated with room. 0: nothing on the line; SIZE_MAX: unbalanced quotes.
 */
size_t resp_inline_to_multibulk(struct slice line, char *out, size_t size);

/* ---- replies ---- */

/* How much of a reply's head is kept for whoever must know how it went (error codes, the kind of a push). Bytes. */
#define RESP_HEAD_KEPT 64

enum resp_reply_phase {
    RESP_REPLY_START,
    RESP_REPLY_LINE, /* a simple string, error, number, … up to CR */
    RESP_REPLY_LINE_LF,
    RESP_REPLY_LENGTH, /* a length or count up to CR */
    RESP_REPLY_LENGTH_LF,
    RESP_REPLY_PAYLOAD,
    RESP_REPLY_PAYLOAD_CR,
    RESP_REPLY_PAYLOAD_LF
};

struct resp_reply {
    enum resp_reply_phase phase;
    char type;    /* of the reply itself: its first byte (that of an attribute while one precedes it) */
    char element; /* type byte of the element being read */
    bool negative;
    uint8_t digits;
    bool keep_head; /* set by the caller before the frame starts, kept until changed */
    uint8_t head_length;
    uint64_t number;
    int64_t integer; /* the last ':' element read: the count that ends a SUBSCRIBE confirmation */
    uint64_t payload_left;
    uint64_t elements_left; /* elements still to come, the current one included */
    uint64_t size;          /* bytes of the frame taken so far */
    char head[RESP_HEAD_KEPT];
};

/* Takes bytes up to the end of one reply (or push), at most length of them; *taken says how many. */
enum resp_status resp_reply_feed(struct resp_reply *reply, const char *data, size_t length, size_t *taken);

/* Makes ready for the next reply; keep_head stays. */
void resp_reply_reset(struct resp_reply *reply);

/* Whether the head, which must have been kept, begins so. */
static inline bool resp_reply_starts(const struct resp_reply *reply, const char *text)
{
    return slice_begins((struct slice){reply->head, reply->head_length}, text);
}

static inline bool resp_reply_is_error(const struct resp_reply *reply)
{
    return reply->type == '-' || reply->type == '!';
}

/* How much of the head is its first line, for texts of one line. */
static inline size_t resp_reply_head_line(const struct resp_reply *reply)
{
    size_t length = 0;

    while (length < reply->head_length && reply->head[length] != '\r' && reply->head[length] != '\n') {
        length++;
    }
    return length;
}

/* True while no byte of a further frame has been taken. */
static inline bool resp_reply_idle(const struct resp_reply *reply)
{
    return reply->size == 0;
}

#endif
