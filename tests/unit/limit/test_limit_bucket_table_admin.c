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
