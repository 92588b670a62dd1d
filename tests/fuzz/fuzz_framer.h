/* What the targets of the framers share. */
#ifndef HEADGATE_TESTS_FUZZ_FRAMER_H
#define HEADGATE_TESTS_FUZZ_FRAMER_H

#include "fuzz_cut.h"
#include "resp/resp.h"

#include <hiredis/read.h>
#include <string.h>

/* The framer that is fuzzed; taken: how many of the bytes it took. */
typedef enum resp_status framer_feed(void *framer, const char *bytes, size_t length, size_t *taken);

/* From a block of just its size, so that the sanitizer sees a byte read too many. */
static inline enum resp_status feed_copy(framer_feed *feed, void *framer, const char *data, size_t length,
                                         size_t *taken)
{
    char *copy = malloc(length);
    enum resp_status status;

    require(copy != NULL);
    memcpy(copy, data, length);
    status = feed(framer, copy, length, taken);
    free(copy);
    return status;
}

/* In pieces, none of them longer than that. */
static inline enum resp_status feed_cut(framer_feed *feed, void *framer, const char *data, size_t size, size_t longest)
{
    enum resp_status status = RESP_MORE;
    uint32_t seed = seed_of(data, size);

    for (size_t next = 0; status == RESP_MORE && next < size;) {
        size_t length = 1 + next_random(&seed) % longest;
        size_t taken;

        length = length < size - next ? length : size - next;
        status = feed_copy(feed, framer, data + next, length, &taken);
        require(taken <= length && (status != RESP_MORE || taken == length));
        next += taken;
    }
    return status;
}

/* ---- the oracle ---- */

/* Stands for any object: the reader wants something that is not NULL. */
static char object;

static inline void forget(void *reply)
{
    (void)reply;
}

/* What hiredis makes of the bytes, and how many of them it takes. */
static inline enum resp_status read_by_hiredis(redisReader *reader, const char *data, size_t size, size_t *taken)
{
    void *reply = NULL;

    require(redisReaderFeed(reader, data, size) == REDIS_OK);
    if (redisReaderGetReply(reader, &reply) != REDIS_OK) {
        return RESP_FAULT;
    }
    /* It may have thrown away what it has read. */
    *taken = size - (reader->len - reader->pos);
    return reply != NULL ? RESP_DONE : RESP_MORE;
}

#endif
