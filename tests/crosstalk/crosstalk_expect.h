/* The replies that a client waits for, in order. An array stands before the expectations of its elements. */
#ifndef CROSSTALK_EXPECT_H
#define CROSSTALK_EXPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum expect_kind {
    EXPECT_STATUS,      /* text */
    EXPECT_TEXT,        /* bulk: text */
    EXPECT_IDENTITY,    /* bulk: the identity of number */
    EXPECT_VALUE,       /* bulk: the value of number */
    EXPECT_LARGE,       /* bulk: count bytes full of the identity of number */
    EXPECT_INTEGER,     /* number, as long as Redis keeps its data */
    EXPECT_RANGE,       /* number … count */
    EXPECT_CLIENT_ID,   /* the same on this connection each time */
    EXPECT_CLIENT_INFO, /* with the name of number (0: none), user and database of count */
    EXPECT_NULL,
    EXPECT_NULL_ARRAY,
    EXPECT_ARRAY,        /* of count elements, whose expectations follow */
    EXPECT_LIST_KEY,     /* bulk: the own list's key for user and database of count, generation of number */
    EXPECT_SUBSCRIBED,   /* to the channel of generation number */
    EXPECT_UNSUBSCRIBED, /* from the channel of generation number */
    EXPECT_ERROR,        /* that starts with text */
    EXPECT_ERROR_OWN,    /* that starts with text and holds the identity of number */
    EXPECT_HELLO,        /* the map that tells of protocol number */
    EXPECT_RESET
};

struct expectation {
    uint8_t kind; /* enum expect_kind */
    uint8_t resp; /* protocol version in which the reply comes */
    uint32_t count;
    int64_t number;
    const char *text; /* a string constant */
    int64_t sent_us;  /* when its request was made up */
};

struct expect_queue {
    struct expectation *items;
    size_t head;
    size_t count;
    size_t dropped;  /* that are kept behind the head, until they are overwritten */
    size_t capacity; /* a power of two, or 0 */
};

void expect_push(struct expect_queue *queue, struct expectation expectation);

/* The one so many places behind the head; NULL behind the end. */
const struct expectation *expect_at(const struct expect_queue *queue, size_t place);

/* The one that was dropped so many before the head, 0 the last; NULL if another has its place by now. */
const struct expectation *expect_dropped(const struct expect_queue *queue, size_t place);

/* Drops the head, with its elements if it is an array. */
void expect_pop(struct expect_queue *queue);

void expect_clear(struct expect_queue *queue);
void expect_free(struct expect_queue *queue);

static inline uint32_t expect_pack(unsigned user, unsigned database)
{
    return (uint32_t)(user << 8 | database);
}

static inline unsigned expect_user(uint32_t packed)
{
    return packed >> 8;
}

static inline unsigned expect_database(uint32_t packed)
{
    return packed & 0xff;
}

#endif
