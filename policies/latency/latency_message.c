#include "latency/latency_message.h"

#include <string.h>

static const char other[] = "other";

/* ---- texts ---- */

static char *write_part(char *at, const char *end, const char *part)
{
    for (; *part != '\0' && at < end; part++) {
        *at++ = *part >= ' ' && *part <= '~' ? *part : '?';
    }
    return at;
}

void latency_message_write(const char *source, const char *rule, const char *what, char text[LATENCY_MESSAGE_MAX + 1])
{
    const char *end = text + LATENCY_MESSAGE_MAX;
    char *at = write_part(text, end, source);

    if (rule != NULL) {
        at = write_part(at, end, ":");
        at = write_part(at, end, rule);
    }
    at = write_part(at, end, " ");
    at = write_part(at, end, what);
    *at = '\0';
}

/* ---- lists ---- */

/* Where it is; the length of the list if it is not there. */
static size_t find(const struct latency_message_list *list, const char *text)
{
    size_t at = 0;

    if (list->last < list->length && strcmp(list->messages[list->last].text, text) == 0) {
        return list->last;
    }
    while (at < list->length && strcmp(list->messages[at].text, text) != 0) {
        at++;
    }
    return at;
}

/* Where it is now; or, without room, where what is beyond is counted. */
static size_t place_of(struct latency_message_list *list, const char *text)
{
    size_t at = find(list, text);

    if (at == LATENCY_MESSAGES) {
        at = find(list, other);
    }
    if (at == LATENCY_MESSAGES) {
        at--;
        memcpy(list->messages[at].text, other, sizeof other);
    } else if (at == list->length) {
        list->messages[at] = (struct latency_message){0};
        memcpy(list->messages[at].text, text, strnlen(text, LATENCY_MESSAGE_MAX));
        list->length++;
    }
    return at;
}

void latency_message_add(struct latency_message_list *list, const char *text, uint64_t times, int64_t second)
{
    struct latency_message *message;

    list->last = place_of(list, text);
    message = &list->messages[list->last];
    message->times += times;
    message->second = second;
}

void latency_message_move(struct latency_message_list *to, struct latency_message_list *from, int64_t second)
{
    for (size_t i = 0; i < from->length; i++) {
        latency_message_add(to, from->messages[i].text, from->messages[i].times, second);
    }
    from->length = 0;
    from->last = 0;
}
