/* What the admin port shows of bucket tables, and resets. */
#include "bucket_table_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void refuse(struct one_rule *one, const char *name, size_t length, uint64_t times)
{
    struct limit_bucket *bucket =
        limit_bucket_pin(one->share, one->member.bucket_table, (struct slice){name, length}, NOW);

    while (charge(one->share, &one->meter, bucket, NOW)) {
    }
    bucket->refused += times;
    limit_bucket_unpin(one->share, bucket);
}

Test(limit_bucket_table, is_printed_with_those_who_were_refused_most)
{
    struct one_rule *one = one_rule(2, 14);
    char expected[2000] = "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=14\n";

    for (uint64_t i = 1; i <= 13; i++) {
        char name[32];
        snprintf(name, sizeof name, "user:%llu", (unsigned long long)i);
        /* 7 is coprime to 13: in no order. */
        refuse(one, name, strlen(name), (i * 7) % 13 * 10 + 10);
    }
    cr_assert(charge_once(one, "user:well-behaved", NOW));
    refuse(one, "user:one-too-many", 17, 95);
    for (int64_t refused = 130; refused >= 50; refused -= 10) {
        int number = 1;
        while (number * 7 % 13 * 10 + 10 != refused) {
            number++;
        }
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected),
                 "offender=user:%d rule=api refused=%lld next_admission_ms=58000\n", number, (long long)refused);
        if (refused == 100) {
            strcat(expected, "offender=others rule=api refused=95 next_admission_ms=58000\n");
        }
    }
    assert_printed(one->share, NOW + 2 * SECOND, expected);
    one_rule_free(one);
}

Test(limit_bucket_table, rounds_up_the_time_until_the_next_admission)
{
    struct one_rule *one = one_rule(1, 10);

    refuse(one, "user:a", 6, 1);
    assert_printed(one->share, NOW + 60 * SECOND - 1001,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n"
                   "offender=user:a rule=api refused=1 next_admission_ms=2\n");
    assert_printed(one->share, NOW + 60 * SECOND - 1000,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n"
                   "offender=user:a rule=api refused=1 next_admission_ms=1\n");
    assert_printed(one->share, NOW + 60 * SECOND,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n"
                   "offender=user:a rule=api refused=1 next_admission_ms=0\n");
    one_rule_free(one);
}

/* The name of the first offender, as it is shown. The caller frees it. */
static char *shown_offender(struct limit_share *share)
{
    char *text = printed(share, NOW);
    char *name = strstr(text, "offender="), *end = name != NULL ? strstr(name, " rule=") : NULL;

    cr_assert_not_null(end, "%s", text);
    name = strndup(name + strlen("offender="), (size_t)(end - name) - strlen("offender="));
    free(text);
    return name;
}

Test(limit_bucket_table, shows_names_as_operators_can_give_them_back)
{
    struct one_rule *one = one_rule(2, 100);
    static const char name[] = "user:alice\nkey:a b\\";

    refuse(one, name, sizeof name - 1, 1);
    assert_printed(one->share, NOW,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n"
                   "offender=user:alice+key:a\\x20b\\x5c rule=api refused=1 next_admission_ms=60000\n");
    cr_assert_not(charge_once(one, name, NOW));
    cr_assert(limit_share_reset(one->share, slice("api"), slice("user:alice+key:a\\x20b\\x5c"), NULL, NULL));
    cr_assert(charge_once(one, name, NOW));
    one_rule_free(one);
}

/* A key holds what its client wants it to hold. */
Test(limit_bucket_table, shows_names_of_any_bytes_harmlessly)
{
    char all_bytes[256], longest[LIMIT_BUCKET_MAX];
    static const char forged[] = "key:a rule=other refused=0\r\nrule=api\0\x1b[2J%s%n\\x41\xff";
    const struct slice names[] = {
        {forged, sizeof forged - 1}, {all_bytes, sizeof all_bytes}, {longest, sizeof longest}, {"", 0}};

    for (size_t i = 0; i < sizeof all_bytes; i++) {
        all_bytes[i] = (char)i;
    }
    memset(longest, 1, sizeof longest);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct one_rule *one = one_rule(2, 100);
        refuse(one, names[i].data, names[i].length, 1);
        char *shown = shown_offender(one->share);
        for (const char *at = shown; *at != '\0'; at++) {
            cr_assert(*at > ' ' && *at < 0x7f, "%s", shown);
        }
        cr_assert(strlen(shown) >= names[i].length && strlen(shown) <= 4 * LIMIT_BUCKET_MAX);
        char *expected = conf_format("rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n"
                                     "offender=%s rule=api refused=1 next_admission_ms=60000\n",
                                     shown);
        assert_printed(one->share, NOW, expected);
        cr_assert(limit_share_reset(one->share, slice("api"), slice(shown), NULL, NULL));
        free(expected);
        free(shown);
        one_rule_free(one);
    }
}

Test(limit_bucket_table, are_printed_in_the_order_in_which_they_joined)
{
    struct limit_share *share = share_of(1);
    struct limit_member members[3] = {{.description = "x=1"}, {.description = "x=2"}, {.description = "x=3"}};
    const char *const names[3] = {"zebra", "ape", "mule"};

    assert_printed(share, NOW, "");
    for (size_t i = 0; i < 3; i++) {
        join(share, &members[i], names[i], names[i], window_of(1, 1), 10);
        atomic_store(&members[i].counts[LIMIT_ADMITTED], i);
    }
    assert_printed(share, NOW,
                   "rule=zebra x=1 admitted=0 refused=0 delayed=0 observed=0 tracked=0\n"
                   "rule=ape x=2 admitted=1 refused=0 delayed=0 observed=0 tracked=0\n"
                   "rule=mule x=3 admitted=2 refused=0 delayed=0 observed=0 tracked=0\n");
    for (size_t i = 0; i < 3; i++) {
        limit_bucket_table_leave(share, &members[i]);
    }
    limit_share_free(share);
}

Test(limit_bucket_table, of_a_rule_are_reset_for_one_or_for_all)
{
    struct one_rule *one = one_rule(2, 3);
    struct limit_member other = {.description = "per=user"};

    join(one->share, &other, "api2", "api2", one->meter, 10);
    refuse(one, "user:a", 6, 1);
    refuse(one, "user:b", 6, 2);
    refuse(one, "user:c", 6, 3);
    refuse(one, "user:without-room", 17, 4);
    struct limit_bucket *of_other = pin_tracked(one->share, &other, "user:a");
    while (charge(one->share, &one->meter, of_other, NOW)) {
    }

    cr_assert_not(limit_share_reset(one->share, slice("ap"), slice(""), NULL, NULL));
    cr_assert_not(limit_share_reset(one->share, slice(""), slice(""), NULL, NULL));
    cr_assert_not(limit_share_reset(one->share, slice("api"), slice("user:x"), NULL, NULL));
    cr_assert_not(limit_share_reset(one->share, slice("api"), slice("user:aa"), NULL, NULL));
    cr_assert_not(limit_share_reset(one->share, slice("api2"), slice("user:b"), NULL, NULL));
    cr_assert_not(charge_once(one, "user:a", NOW));

    cr_assert(limit_share_reset(one->share, slice("api"), slice("user:a"), NULL, NULL));
    cr_assert(charge_once(one, "user:a", NOW));
    cr_assert_not(charge_once(one, "user:b", NOW));
    assert_printed(one->share, NOW,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=3\n"
                   "offender=others rule=api refused=4 next_admission_ms=60000\n"
                   "offender=user:c rule=api refused=3 next_admission_ms=60000\n"
                   "offender=user:b rule=api refused=2 next_admission_ms=60000\n"
                   "rule=api2 per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n");
    cr_assert(limit_share_reset(one->share, slice("api"), slice("others"), NULL, NULL));
    cr_assert(charge_once(one, "user:without-room", NOW));
    cr_assert_not(charge_once(one, "user:b", NOW));

    cr_assert(limit_share_reset(one->share, slice("api"), slice(""), NULL, NULL));
    cr_assert(charge_once(one, "user:b", NOW));
    cr_assert(charge_once(one, "user:c", NOW));
    assert_printed(one->share, NOW,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=3\n"
                   "rule=api2 per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n");
    cr_assert_not(charge(one->share, &one->meter, of_other, NOW), "the other rule's is as it was");
    cr_assert(limit_share_reset(one->share, slice("api2"), slice("user:a"), NULL, NULL));
    cr_assert(charge(one->share, &one->meter, of_other, NOW));
    limit_bucket_unpin(one->share, of_other);
    limit_bucket_table_leave(one->share, &other);
    one_rule_free(one);
}
