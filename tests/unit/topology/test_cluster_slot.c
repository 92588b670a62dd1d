/* Slots of keys, beside what the installed redis-server says of them. */
#include "topology/cluster_slot.h"

#include "../command/server_fixture.h"

#include <criterion/criterion.h>

#define SLICE(text) ((struct slice){text, sizeof(text) - 1})

/* ---- beside Redis ---- */

TestSuite(cluster_slot_server, .init = server_start_node, .fini = server_stop, .timeout = 60);

static void expect_as_told(const char *key, size_t length)
{
    const char *argv[] = {"CLUSTER", "KEYSLOT", key};
    const size_t lengths[] = {7, 7, length};
    redisReply *told = server_ask_bytes(3, argv, lengths);

    cr_assert_eq(told->type, REDIS_REPLY_INTEGER, "%s", told->str);
    cr_assert_eq(cluster_slot_of((struct slice){key, length}), told->integer, "%.*s", (int)length, key);
    freeReplyObject(told);
}

/* Each text of up to five of these has been a trap for somebody. */
Test(cluster_slot_server, agrees_on_every_arrangement_of_braces)
{
    static const char letters[] = {'{', '}', 'a', '\0'};
    char key[5] = "";

    for (size_t length = 0; length <= sizeof(key); length++) {
        for (unsigned int which = 0; which < 1U << 2 * length; which++) {
            for (size_t i = 0; i < length; i++)
                key[i] = letters[which >> 2 * i & 3];
            expect_as_told(key, length);
        }
    }
}

Test(cluster_slot_server, agrees_on_any_bytes)
{
    char key[300];

    srand(17);
    for (int round = 0; round < 5000; round++) {
        size_t length = (size_t)rand() % (round % 50 == 0 ? sizeof(key) : 24);
        for (size_t i = 0; i < length; i++)
            key[i] = rand() % 6 == 0 ? "{}"[rand() % 2] : (char)rand();
        expect_as_told(key, length);
    }
}
