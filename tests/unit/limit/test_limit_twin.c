/* What a process that takes over is told of buckets. */
#include "base/text.h"
#include "bucket_table_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>

/* Less than what there is of most stripes. */
#define MOST ((size_t)200)

/* All that one share tells, in so many pieces as it takes, heard by the other. */
static void pass_on(struct limit_share *from, struct limit_share *to)
{
    uint64_t at = 0;
    size_t pieces = 0;

    do {
        struct text_stream text;
        cr_assert(text_open(&text));
        at = limit_share_tell(from, text.out, at, MOST);
        cr_assert(text_close(&text));
        cr_assert_leq(text.length, MOST + 6 * LIMIT_BUCKET_MAX);
        limit_share_hear(to, (struct slice){text.bytes, text.length}, NOW);
        text_free(&text);
        cr_assert_lt(++pieces, 10000);
    } while (at != 0);
}

static size_t left(struct one_rule *one, const char *name)
{
    size_t count = 0;

    while (charge_once(one, name, NOW)) {
        count++;
    }
    return count;
}

Test(limit_twin, everything_is_told_in_pieces)
{
    struct one_rule *old = one_rule(4, 1000), *fresh = one_rule(1, 1000);
    char name[64];

    for (size_t i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "user:a rather long name of somebody %zu", i);
        for (size_t n = 0; n < i % 6; n++) {
            cr_assert(charge_once(old, name, NOW));
        }
    }
    pass_on(old->share, fresh->share);
    for (size_t i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "user:a rather long name of somebody %zu", i);
        cr_assert_eq(left(fresh, name), 5 - i % 6, "%s", name);
    }
    one_rule_free(old);
    one_rule_free(fresh);
}

Test(limit_twin, connections_are_not_told_of)
{
    struct one_rule *old = one_rule(1, 10), *fresh = one_rule(1, 10);

    cr_assert(charge_once(old, "connection:7", NOW));
    cr_assert(charge_once(old, "user:a\nconnection:7", NOW));
    cr_assert(charge_once(old, "user:a\nkey:\nconnection:7", NOW));
    pass_on(old->share, fresh->share);
    cr_assert_eq(limit_share_tracked(fresh->share), 1);
    cr_assert_eq(left(fresh, "user:a\nkey:\nconnection:7"), 4);
    one_rule_free(old);
    one_rule_free(fresh);
}

Test(limit_twin, what_cannot_be_understood_is_passed_over)
{
    static const char *const lines[] = {
        "",
        "\n",
        "table\n",
        "table %zz\nwindow user:a 0 1 1\n",
        "window user:a 0 1 1\n",
        "table what%20api%20counts\nwindow\n",
        "table what%20api%20counts\nwindow %\n",
        "table what%20api%20counts\nwindow user:a\n",
        "table what%20api%20counts\nwindow user:a x\n",
        "table what%20api%20counts\nwindow user:a 0 9223372036854775807 1\n",
        "table what%20api%20counts\nwindow user:a 0 5\n",
        "table what%20api%20counts\nwindow user:a 0 5 0\n",
        "table what%20api%20counts\ncharged user:a 4\n",
        "table what%20api%20counts\nfunnel user:a 0 9223372036854775807\n",
        "table what%20api%20counts\nfuture user:a 1 2 3\n",
    };
    struct one_rule *one = one_rule(1, 100);

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        limit_share_hear(one->share, slice_of(lines[i]), NOW);
    }
    cr_assert_eq(left(one, "user:a"), 5);
    /* Any mistake in what is sound. */
    const char sound[] = "table what%20api%20counts\nwindow user:b 3 999000000 2 999500000 1\nwindow user:c%20 2\n";
    for (size_t at = 0; at < sizeof sound - 1; at++) {
        for (int byte = 0; byte < 256; byte += 5) {
            char text[sizeof sound];
            memcpy(text, sound, sizeof sound);
            text[at] = (char)byte;
            limit_share_hear(one->share, (struct slice){text, sizeof sound - 1}, NOW);
            limit_share_hear(one->share, (struct slice){text, at}, NOW);
        }
    }
    cr_assert_leq(limit_share_tracked(one->share), 100);
    one_rule_free(one);
}
