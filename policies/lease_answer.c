#include "lease_shape.h"

#include <string.h>

enum reply_form { FORM_OTHER, FORM_ERROR, FORM_NOT_RUN, FORM_NIL, FORM_INTEGER, FORM_OK, FORM_VALUE, FORM_ARRAY };

/* Whether the head begins so; what follows is put to *rest. */
static bool begins(struct slice head, const char *text, struct slice *rest)
{
    size_t length = strlen(text);

    if (head.length < length || memcmp(head.data, text, length) != 0) {
        return false;
    }
    *rest = (struct slice){head.data + length, head.length - length};
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
                 {"-NOSCRIPT", FORM_NOT_RUN}, {"-", FORM_ERROR},         {"!", FORM_ERROR}};
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
        return shape->reply == LEASE_REPLY_NO_ERROR ? LEASE_ANSWER_NO : LEASE_ANSWER_UNCLEAR;
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
