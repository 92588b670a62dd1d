/* Byte queues: their content under every mix of calls, and what they take from and give back to the pool. */
#include "base/buffer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (BUFFER_CLASS_SMALLEST << (BUFFER_CLASSES - 1))

static struct buffer_pool pool;
static struct memory memory;

static void empty_pool(void)
{
    memory = (struct memory){0};
    pool = (struct buffer_pool){.memory = &memory};
}

static void check_pool(void)
{
    cr_assert_eq(pool.bytes_lent, 0, "every block was given back");
    buffer_pool_free(&pool);
    cr_assert_eq(pool.bytes_kept, 0, "no free block is forgotten");
    cr_assert_eq(memory.used, 0, "nor in the account");
}

TestSuite(buffer, .init = empty_pool, .fini = check_pool);

static void append(struct buffer *buffer, const char *text)
{
    cr_assert(buffer_append(&pool, buffer, text, strlen(text)));
}

/* Appends size bytes of a pattern that tells each place in the stream from its neighbours. */
static void append_stream(struct buffer *buffer, size_t *written, size_t size)
{
    char *room = buffer_reserve(&pool, buffer, size);

    cr_assert_not_null(room);
    cr_assert_geq(buffer_room(buffer), size);
    for (size_t i = 0; i < size; i++) {
        room[i] = (char)((*written + i) * 31 >> 3);
    }
    buffer_commit(buffer, size);
    *written += size;
}

static void consume_stream(struct buffer *buffer, size_t *read, size_t size)
{
    const char *head = buffer_head(buffer);
    size_t wrong = 0;

    for (size_t i = 0; i < size; i++) {
        wrong += head[i] != (char)((*read + i) * 31 >> 3);
    }
    cr_assert_eq(wrong, 0, "%zu wrong bytes behind byte %zu", wrong, *read);
    buffer_consume(&pool, buffer, size);
    *read += size;
}

Test(buffer, takes_no_memory_while_it_is_empty)
{
    struct buffer buffer = {0};

    append(&buffer, "");
    cr_assert_null(buffer.data);
    cr_assert_eq(pool.bytes_lent, 0);
    append(&buffer, "x");
    cr_assert_eq(pool.bytes_lent, BUFFER_CLASS_SMALLEST);
    buffer_consume(&pool, &buffer, 1);
    cr_assert_null(buffer.data);
    cr_assert_eq(pool.bytes_lent, 0);
    cr_assert_eq(pool.bytes_kept, BUFFER_CLASS_SMALLEST);
}

Test(buffer, keeps_its_bytes_under_a_random_mix)
{
    struct buffer buffer = {0};
    size_t written = 0, read = 0;
    unsigned seed = 1;

    for (int step = 0; step < 20000; step++) {
        size_t length = buffer_length(&buffer);
        size_t size = (size_t)rand_r(&seed) % (step % 500 == 0 ? 300000 : 3000);
        if (rand_r(&seed) % 2 == 0 && length < 2 * LARGEST) {
            append_stream(&buffer, &written, size);
        } else {
            consume_stream(&buffer, &read, size < length ? size : length);
        }
        cr_assert_eq(buffer_length(&buffer), written - read);
        uint64_t has = pool.bytes_lent + pool.bytes_kept;
        cr_assert(has <= memory.used + MEMORY_STEP && memory.used <= has + MEMORY_STEP, "the account knows");
        if (step % 1000 == 0) {
            /* Beyond it, nothing is kept for later. */
            memory.limit = step % 2000 == 0 ? LARGEST / 4 : 0;
        }
    }
    consume_stream(&buffer, &read, written - read);
}

Test(buffer, does_not_grow_with_what_flows_through)
{
    struct buffer buffer = {0};
    size_t written = 0, read = 0;

    append_stream(&buffer, &written, 500);
    for (int step = 0; step < 10000; step++) {
        append_stream(&buffer, &written, 400);
        consume_stream(&buffer, &read, 400);
    }
    cr_assert_leq(buffer.capacity, 4 * BUFFER_CLASS_SMALLEST);
    buffer_clear(&pool, &buffer);
}

Test(buffer, does_not_keep_what_is_larger_than_its_classes)
{
    struct buffer buffer = {0};
    size_t written = 0, read = 0;

    append_stream(&buffer, &written, LARGEST + 1);
    consume_stream(&buffer, &read, 1000);
    append_stream(&buffer, &written, 2 * LARGEST);
    cr_assert_gt(pool.bytes_lent, 2 * LARGEST);
    consume_stream(&buffer, &read, written - read);
    cr_assert_eq(pool.bytes_kept, 0);
}

Test(buffer, trimming_gives_back_half_of_what_nobody_needed)
{
    struct buffer buffers[16] = {0};

    for (size_t i = 0; i < 16; i++) {
        append(&buffers[i], "x");
    }
    cr_assert_not(buffer_pool_trim(&pool), "all are in use");
    for (size_t i = 0; i < 16; i++) {
        buffer_clear(&pool, &buffers[i]);
    }
    cr_assert_not(buffer_pool_trim(&pool), "all were in use since the last time");
    cr_assert_eq(pool.bytes_kept, 16 * BUFFER_CLASS_SMALLEST);
    /* Four of them are needed from now on. */
    for (size_t left = 16; left > 5;) {
        for (size_t i = 0; i < 4; i++) {
            append(&buffers[i], "x");
        }
        for (size_t i = 0; i < 4; i++) {
            buffer_clear(&pool, &buffers[i]);
        }
        cr_assert(buffer_pool_trim(&pool));
        size_t unneeded = left - 4;
        left -= (unneeded + 1) / 2;
        cr_assert_eq(pool.bytes_kept, left * BUFFER_CLASS_SMALLEST, "%zu blocks expected", left);
    }
    for (int i = 0; i < 5; i++) {
        buffer_pool_trim(&pool);
    }
    cr_assert_eq(pool.bytes_kept, 0, "in the end everything is given back");
}
