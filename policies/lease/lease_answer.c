#include "lease/lease_shape.h"

#include <string.h>

enum reply_form { FORM_OTHER, FORM_ERROR, FORM_NOT_RUN, FORM_NIL, FORM_INTEGER, FORM_OK, FORM_VALUE, FORM_ARRAY };

/* Whether the head begins so; what follows is put to *rest. */
static bool begins(struct slice head, const char *text, struct slice *rest)
{
    if (!slice_begins(head, text)) {
        return false;
    }
    *rest = (struct slice){head.data + strlen(text), head.length - strlen(text)};
    return true;
}

/* A line of an integer, without its mark. */
static bool read_reply_integer(struct slice text, int64_t *value)
{
    const char *end = text.length > 0 ? memchr(text.data, '\r', text.length) : NULL;

    return end != NULL && word_integer((struct slice){text.data, (size_t)(end - text.data)}, value);
}

/* value: of an integer, or of an array's first element. */
static enum reply_form reply_form(struct slice head, int64_t *value)
{
    static const struct {
        const char *begin;
        enum reply_form form;
    } forms[] = {{"+OK\r\n", FORM_OK},        {"$2\r\nOK\r\n", FORM_OK}, {"$-1\r\n", FORM_NIL}, {"*-1\r\n", FORM_NIL},
                 {"_\r\n", FORM_NIL},         {"#f\r\n", FORM_NIL},      {"$", FORM_VALUE},     {"=", FORM_VALUE},
                 {"-NOSCRIPT", FORM_NOT_RUN}, {"-NOAUTH", FORM_NOT_RUN}, {"-", FORM_ERROR},     {"!", FORM_ERROR}};
    struct slice rest;

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (begins(head, forms[i].begin, &rest)) {
            return forms[i].form;
        }
    }
    *value = 1;
    if (begins(head, "#t\r\n", &rest) || (begins(head, ":", &rest) && read_reply_integer(rest, value))) {
        return FORM_INTEGER;
    }
    if (begins(head, "*2\r\n:", &rest) && read_reply_integer(rest, value)) {
        return FORM_ARRAY;
    }
    return FORM_OTHER;
}

static enum lease_answer yes_if(bool is)
{
    return is ? LEASE_ANSWER_YES : LEASE_ANSWER_NO;
}

static enum lease_answer integer_answer(const struct lease_shape *shape, int64_t value)
{
    switch (shape->reply) {
    case LEASE_REPLY_ONE:
        return yes_if(value == 1);
    case LEASE_REPLY_ZERO:
        return yes_if(value == 0);
    case LEASE_REPLY_COUNT:
    case LEASE_REPLY_TRUTH:
        return yes_if(value > 0);
    case LEASE_REPLY_ALL_KEYS:
        return yes_if(value == shape->key_count);
    case LEASE_REPLY_NIL:
        return LEASE_ANSWER_NO;
    case LEASE_REPLY_HOLDS:
        return value == 1 ? LEASE_ANSWER_YES : value == 0 ? LEASE_ANSWER_HELD : LEASE_ANSWER_UNCLEAR;
    case LEASE_REPLY_MAYBE:
        return value == 1 ? LEASE_ANSWER_YES : LEASE_ANSWER_UNCLEAR;
    case LEASE_REPLY_NO_ERROR:
    case LEASE_REPLY_VALUE:
        return LEASE_ANSWER_YES;
    default:
        return LEASE_ANSWER_UNCLEAR;
    }
}

static enum lease_answer nil_answer(enum lease_reply reply)
{
    switch (reply) {
    case LEASE_REPLY_NIL:
    case LEASE_REPLY_NO_ERROR:
        return LEASE_ANSWER_YES;
    case LEASE_REPLY_NONE:
    case LEASE_REPLY_ZERO:
    case LEASE_REPLY_FENCE:
        return LEASE_ANSWER_UNCLEAR;
    default:
        return LEASE_ANSWER_NO;
    }
}

static enum lease_answer ok_answer(enum lease_reply reply)
{
    switch (reply) {
    case LEASE_REPLY_OK:
    case LEASE_REPLY_TRUTH:
    case LEASE_REPLY_NO_ERROR:
    case LEASE_REPLY_VALUE:
        return LEASE_ANSWER_YES;
    case LEASE_REPLY_NIL:
        return LEASE_ANSWER_NO;
    default:
        return LEASE_ANSWER_UNCLEAR;
    }
}

/* OK of a permit that is refused is a date behind a colon. */
static enum lease_answer value_answer(enum lease_reply reply)
{
    switch (reply) {
    case LEASE_REPLY_NO_ERROR:
    case LEASE_REPLY_VALUE:
        return LEASE_ANSWER_YES;
    case LEASE_REPLY_NIL:
    case LEASE_REPLY_OK:
        return LEASE_ANSWER_NO;
    default:
        return LEASE_ANSWER_UNCLEAR;
    }
}

bool lease_answer_integer(struct slice head, int64_t *value)
{
    struct slice rest;

    return begins(head, ":", &rest) && read_reply_integer(rest, value);
}

/* ---- EXEC ---- */

/* Takes a line of mark, integer, CR and LF off the text. */
static bool take_number_line(struct slice *text, char mark, int64_t *value)
{
    const char *end = text->length > 0 ? memchr(text->data, '\n', text->length) : NULL;

    if (end == NULL || text->data[0] != mark ||
        !read_reply_integer((struct slice){text->data + 1, (size_t)(end - text->data)}, value)) {
        return false;
    }
    size_t length = (size_t)(end - text->data) + 1;
    *text = (struct slice){text->data + length, text->length - length};
    return true;
}

/* How long the reply is with which the text begins: a line, or a text behind one. 0 if it is another, or not whole. */
static size_t simple_length(struct slice text)
{
    const char *end = text.length > 0 ? memchr(text.data, '\n', text.length) : NULL;
    struct slice rest = text;
    int64_t length;

    if (end == NULL || memchr("*~%>|!=(,", text.data[0], 9) != NULL) {
        return 0;
    }
    size_t line = (size_t)(end - text.data) + 1;
    if (text.data[0] != '$') {
        return line;
    }
    if (!take_number_line(&rest, '$', &length)) {
        return 0;
    }
    if (length < 0) {
        return line;
    }
    return rest.length >= 2 && (uint64_t)length <= rest.length - 2 ? line + (size_t)length + 2 : 0;
}

bool lease_answer_of_exec(struct slice head, uint32_t place, uint32_t count, struct slice *reply)
{
    int64_t announced;
    size_t length = 0;

    if (!take_number_line(&head, '*', &announced) || announced != count || place >= count) {
        return false;
    }
    for (uint32_t at = 0; at <= place; at++) {
        head = (struct slice){head.data + length, head.length - length};
        length = simple_length(head);
        if (length == 0) {
            return false;
        }
    }
    *reply = (struct slice){head.data, length};
    return true;
}

/* ---- what a reply says ---- */

enum lease_answer lease_shape_answer(const struct lease_shape *shape, struct slice head)
{
    int64_t value = 0;

    if (shape->action == LEASE_NOTHING || shape->reply == LEASE_REPLY_NONE) {
        return LEASE_ANSWER_UNCLEAR;
    }
    switch (reply_form(head, &value)) {
    case FORM_NOT_RUN:
        return LEASE_ANSWER_NO;
    case FORM_ERROR:
        /* A command has done nothing then; a script may have begun. */
        return shape->script == NULL || shape->reply == LEASE_REPLY_NO_ERROR ? LEASE_ANSWER_NO : LEASE_ANSWER_UNCLEAR;
    case FORM_NIL:
        return nil_answer(shape->reply);
    case FORM_INTEGER:
        return integer_answer(shape, value);
    case FORM_OK:
        return ok_answer(shape->reply);
    case FORM_VALUE:
        return value_answer(shape->reply);
    case FORM_ARRAY:
        return shape->reply == LEASE_REPLY_FENCE ? yes_if(value == -1) : LEASE_ANSWER_UNCLEAR;
    default:
        return LEASE_ANSWER_UNCLEAR;
    }
}
