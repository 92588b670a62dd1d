#include "resp/resp_element.h"

#include "resp/word.h"

static struct slice slice_behind(struct slice text, size_t length)
{
    return (struct slice){text.data + length, text.length - length};
}

/* The number on the first line behind the type byte, of a frame that is known to be sound; *behind is where the next
 * line begins. */
static int64_t read_head(struct slice frame, size_t *behind)
{
    const char *end = memchr(frame.data, '\r', frame.length);
    size_t length = end != NULL ? (size_t)(end - frame.data) : frame.length;
    int64_t number = 0;

    (void)word_integer((struct slice){frame.data + 1, length - 1}, &number);
    *behind = length + 2;
    return number;
}

static void take_line(struct resp_element *element)
{
    element->text = (struct slice){element->whole.data + 1, element->whole.length - 3};
    if (element->type == ':') {
        (void)word_integer(element->text, &element->integer);
    }
    element->is_null = element->type == '_';
}

static void take_payload(struct resp_element *element)
{
    size_t behind;
    int64_t length = read_head(element->whole, &behind);

    element->is_null = length < 0;
    if (!element->is_null) {
        element->text = (struct slice){element->whole.data + behind, (size_t)length};
    }
}

static void take_aggregate(struct resp_element *element)
{
    size_t behind;
    int64_t count = read_head(element->whole, &behind);

    element->is_null = count < 0;
    if (!element->is_null) {
        element->count = (uint64_t)count * (element->type == '%' ? 2 : 1);
        element->inside = slice_behind(element->whole, behind);
    }
}

/* Takes a frame of its own, with the attributes ahead of it; false: it is not whole and sound. */
static bool take_frame(struct slice *rest, struct slice *frame)
{
    struct resp_reply reply = {.size = 0};
    size_t taken = 0;

    if (rest->length == 0 || resp_reply_feed(&reply, rest->data, rest->length, &taken) != RESP_DONE) {
        return false;
    }
    *frame = (struct slice){rest->data, taken};
    *rest = slice_behind(*rest, taken);
    return true;
}

/* What lies behind the attributes at the head of a frame that is sound. */
static struct slice behind_attributes(struct slice frame)
{
    struct slice ignored;
    size_t behind;

    while (frame.data[0] == '|') {
        int64_t pairs = read_head(frame, &behind);
        frame = slice_behind(frame, behind);
        for (int64_t i = 0; i < 2 * pairs; i++) {
            (void)take_frame(&frame, &ignored);
        }
    }
    return frame;
}

bool resp_element_next(struct slice *rest, struct resp_element *element)
{
    struct slice frame;

    if (!take_frame(rest, &frame)) {
        return false;
    }
    frame = behind_attributes(frame);
    *element = (struct resp_element){.type = frame.data[0], .whole = frame};
    if (strchr("$!=", element->type) != NULL) {
        take_payload(element);
    } else if (strchr("*%~>", element->type) != NULL) {
        take_aggregate(element);
    } else {
        take_line(element);
    }
    return true;
}

bool resp_element_next_list(struct slice *rest, uint64_t least, struct resp_element *element)
{
    return resp_element_next(rest, element) && strchr("*%~>", element->type) != NULL && !element->is_null &&
           element->count >= least;
}

bool resp_element_next_text(struct slice *rest, struct slice *text)
{
    struct resp_element element;

    if (!resp_element_next(rest, &element) || strchr("$+=", element.type) == NULL || element.is_null) {
        return false;
    }
    *text = element.text;
    return true;
}

bool resp_element_next_integer(struct slice *rest, int64_t *integer)
{
    struct resp_element element;

    if (!resp_element_next(rest, &element) || element.type != ':') {
        return false;
    }
    *integer = element.integer;
    return true;
}
