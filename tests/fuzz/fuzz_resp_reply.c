/*
 * Fuzzes the framing of replies. What must hold for any bytes:
 *
 * - However they are cut, the framer comes to the same.
 * - hiredis' reader (0.14: RESP2 only) is the oracle. Where it finds a whole reply, so does the framer, of the same
 *   length; where it waits for more, the framer does not end; where it refuses, so does the framer.
 *
 * They differ on purpose in this, and in nothing else:
 * - RESP3: hiredis 0.14 refuses every type byte it does not know. So the comparison ends at the first element of RESP3.
 * - Depth: hiredis refuses what is nested deeper than its stack. The framer keeps no stack and follows any depth.
 * - The end of a bulk: hiredis skips two bytes whatever they are. The framer demands CR LF, and refuses a frame that
 *   hiredis takes if a bulk in it ends otherwise.
 * - Patience: hiredis looks at a line or bulk when all of it has come. The framer refuses a wrong number at its first
 *   wrong byte, a wrong end of a bulk at once, and a bulk over 4 GiB or a sum of elements over 2^40 when announced.
 */
#include <stdint.h>
#include <string.h>

#include "fuzz_framer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the framer ---- */

static enum resp_status feed(void *framer, const char *bytes, size_t length, size_t *taken)
{
    struct resp_reply *reply = framer;
    uint64_t before = reply->size;
    enum resp_status status = resp_reply_feed(reply, bytes, length, taken);

    require(reply->size == before + *taken);
    return status;
}

static void require_alike(const struct resp_reply *a, const struct resp_reply *b)
{
    require(a->type == b->type && a->element == b->element && a->phase == b->phase);
    require(a->size == b->size && a->elements_left == b->elements_left && a->integer == b->integer);
    require(a->head_length == b->head_length && memcmp(a->head, b->head, a->head_length) == 0);
}

static enum resp_status feed_every_way(struct resp_reply *whole, const char *data, size_t size)
{
    static const size_t longest[] = {1, 3, 17, 200};
    size_t taken;
    enum resp_status status = feed_copy(feed, whole, data, size, &taken);

    require(taken == whole->size && taken <= size);
    require(status != RESP_MORE || taken == size);
    require(whole->head_length == (taken < RESP_HEAD_KEPT ? taken : RESP_HEAD_KEPT));
    require(memcmp(whole->head, data, whole->head_length) == 0);
    for (size_t i = 0; i < sizeof(longest) / sizeof(longest[0]); i++) {
        struct resp_reply reply = {.keep_head = true};

        require(feed_cut(feed, &reply, data, size, longest[i]) == status);
        require_alike(&reply, whole);
    }
    return status;
}

/* ---- the oracle ---- */

struct oracle {
    enum resp_status status;
    size_t taken;
    bool bulk_ends_wrong; /* a bulk that does not end in CR LF */
    bool beyond;          /* refused for its type byte or depth, which says nothing */
    long long integer;    /* the last one read */
};

static void *read_string(const redisReadTask *task, char *text, size_t length)
{
    struct oracle *oracle = task->privdata;

    if (task->type == REDIS_REPLY_STRING && memcmp(text + length, "\r\n", 2) != 0) {
        oracle->bulk_ends_wrong = true;
    }
    return &object;
}

static void *read_array(const redisReadTask *task, int elements)
{
    (void)task;
    (void)elements;
    return &object;
}

static void *read_integer(const redisReadTask *task, long long value)
{
    struct oracle *oracle = task->privdata;

    oracle->integer = value;
    return &object;
}

static void *read_nil(const redisReadTask *task)
{
    (void)task;
    return &object;
}

static struct oracle ask_hiredis(const char *data, size_t size)
{
    static redisReplyObjectFunctions functions = {read_string, read_array, read_integer, read_nil, forget};
    struct oracle oracle = {.status = RESP_MORE};
    redisReader *reader = redisReaderCreateWithFunctions(&functions);

    require(reader != NULL);
    reader->privdata = &oracle;
    oracle.status = read_by_hiredis(reader, data, size, &oracle.taken);
    oracle.beyond = strstr(reader->errstr, "reply type byte") != NULL || strstr(reader->errstr, "nested") != NULL;
    redisReaderFree(reader);
    return oracle;
}

static void compare(const struct resp_reply *reply, enum resp_status status, const struct oracle *oracle)
{
    if (oracle->bulk_ends_wrong) {
        require(status == RESP_FAULT);
    } else if (oracle->status == RESP_DONE) {
        require(status == RESP_DONE && reply->size == oracle->taken && reply->integer == oracle->integer);
    } else if (oracle->status == RESP_MORE) {
        require(status != RESP_DONE);
    } else if (!oracle->beyond) {
        require(status == RESP_FAULT);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *next = (const char *)data;
    enum resp_status status = RESP_DONE;

    while (status == RESP_DONE && size > 0) {
        struct resp_reply reply = {.keep_head = true};
        struct oracle oracle = ask_hiredis(next, size);

        status = feed_every_way(&reply, next, size);
        compare(&reply, status, &oracle);
        next += reply.size;
        size -= (size_t)reply.size;
    }
    return 0;
}
