/*
 * Messages of one kind that wait for Redis: what happened, how often, and when last; the arguments of
 * lua/event_log.lua. There are so many different ones at most: those beyond count as "other", so that no number is
 * lost. Pure; nothing is locked.
 */
#ifndef HEADGATE_LATENCY_MESSAGE_H
#define HEADGATE_LATENCY_MESSAGE_H

#include "policy/policy.h"

/* Different messages: three arguments each, beside those for all. */
#define LATENCY_MESSAGES 16
/* The longest one, without the NUL behind it; longer ones are cut. */
#define LATENCY_MESSAGE_MAX 120

struct latency_message {
    uint64_t times;
    int64_t second; /* the last time, monotonic */
    char text[LATENCY_MESSAGE_MAX + 1];
};

/* All zero at first. */
struct latency_message_list {
    size_t length;
    size_t last;                                       /* which was added to last: often the next one, too */
    struct latency_message messages[LATENCY_MESSAGES]; /* in the order in which they came */
};

/* Writes "source:rule what", or "source what" without a rule (NULL), ended by a NUL. What is not printable ASCII
 * becomes a "?", as the text becomes a line of a list; at LATENCY_MESSAGE_MAX bytes it is cut. */
void latency_message_write(const char *source, const char *rule, const char *what, char text[LATENCY_MESSAGE_MAX + 1]);

/* It came so many times more, the last one in that second. text: up to LATENCY_MESSAGE_MAX bytes. */
void latency_message_add(struct latency_message_list *list, const char *text, uint64_t times, int64_t second);
/* Adds all of the one list to the other, as of that second, and empties it. */
void latency_message_move(struct latency_message_list *to, struct latency_message_list *from, int64_t second);

#endif
