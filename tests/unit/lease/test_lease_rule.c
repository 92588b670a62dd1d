/* [lease:NAME] rules: what they are without a word, each fault, and what becomes of the locks of which library. */
#include "../conf/conf_fixture.h"
#include "lease/lease_rule.h"
#include "lease_request.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static const struct conf_section *const sections[] = {&lease_section, NULL};

static struct lease_rule *rule_of(const char *options)
{
    struct lease_rule *rule = conf_alloc(NULL, sizeof *rule);
    char *text = conf_format("[lease:a]\n%s", options);
    struct conf *conf = load_conf(text, sections);

    lease_rule_make(rule, conf->rules);
    conf_free(conf);
    free(text);
    return rule;
}

static void rule_free(struct lease_rule *rule)
{
    lease_rule_clear(rule);
    free(rule);
}

static void assert_fault(const char *options, const char *expected)
{
    char *text = conf_format("[lease:a]\n%s\n", options);

    assert_conf_fault(text, sections, expected);
    free(text);
}

Test(lease_rule, faults)
{
    static const char lines[] =
        "ttl = 99ms|ttl = 25h|ttl = 30|max_hold = 99ms|max_hold = 367d|grace = 25h|kind = list|unit = h|score = x|"
        "owner = x|on_owner_gone = x|renew = 1|renew = 1/1|renew = 2/1|renew = 0/3|renew = -1/3|renew = 1 / 3|"
        "renew = 1/3x|renew = 1/1001|renew = 1/3/4|renew = +1/3|libraries = redisson|libraries = :self|"
        "libraries = redisson:|libraries = redisson:selfish|libraries = nobody:self";

    assert_fault("ttl = 3s", "1: [lease:a] keys =: is not set");
    assert_fault("keys = [a", "2: [lease:a] keys = [a: \"[a\" opens a class with \"[\" that it does not close");
    for (size_t i = 0; word_of(lines, i).data != NULL; i++) {
        struct slice line = word_of(lines, i);
        char *options = conf_format("keys = a\n%.*s", (int)line.length, line.data);
        char *expected = conf_format("3: [lease:a] %.*s: ", (int)line.length, line.data);
        assert_fault(options, expected);
        free(expected);
        free(options);
    }
}

/* The first one of the library that does so; any if it is NOTHING. */
static const struct lease_script *script_that(const char *library, enum lease_action action)
{
    for (size_t i = 0; lease_shape_script(i) != NULL; i++) {
        const struct lease_script *script = lease_shape_script(i);
        if (strcmp(script->library, library) == 0 && (action == LEASE_NOTHING || script->action == action)) {
            return script;
        }
    }
    cr_assert_fail("no script of %s", library);
    return NULL;
}

static enum lease_care care_for(const struct lease_rule *rule, const char *library, int64_t lease_ms)
{
    return lease_rule_care(rule, script_that(library, LEASE_NOTHING), lease_ms);
}

Test(lease_rule, cares_for_libraries_as_it_is_told)
{
    const struct lease_script idiom = {.name = "compare and DEL"};
    struct lease_rule *rule = rule_of("keys = a\n");

    cr_assert_eq(lease_rule_care(rule, NULL, 2000), LEASE_CARE_RENEW);
    cr_assert_eq(lease_rule_care(rule, &idiom, 2000), LEASE_CARE_RENEW);
    cr_assert_eq(care_for(rule, "spring", 2000), LEASE_CARE_RENEW);
    cr_assert_eq(care_for(rule, "redlock.net", 2000), LEASE_CARE_SELF);
    cr_assert_eq(care_for(rule, "redis-semaphore", 2000), LEASE_CARE_SELF);
    rule_free(rule);
    /* The last word counts. */
    rule = rule_of("keys = a\nlibraries = REDISSON:never spring:self spring:renew\n");
    cr_assert_eq(care_for(rule, "redisson", 30000), LEASE_CARE_NEVER);
    cr_assert_eq(care_for(rule, "spring", 2000), LEASE_CARE_RENEW);
    cr_assert_eq(care_for(rule, "redlock.net", 2000), LEASE_CARE_RENEW);
    cr_assert_eq(lease_rule_care(rule, NULL, 2000), LEASE_CARE_RENEW);
    rule_free(rule);
}

/* Of libraries that renew what no lease was asked for: a lease that was asked for is a wish. */
Test(lease_rule, tells_a_lease_that_was_asked_for)
{
    const struct lease_script *renewal = script_that("redisson", LEASE_EXTEND), *permit = NULL;
    struct lease_rule *rule = rule_of("keys = a\n");

    for (size_t i = 0;
         (permit = lease_shape_script(i)) != NULL && strcmp(permit->name, "redisson permit acquire") != 0;) {
        i++;
    }
    cr_assert_eq(care_for(rule, "redisson", 30000), LEASE_CARE_SELF);
    cr_assert_eq(care_for(rule, "redisson", 2000), LEASE_CARE_NEVER);
    cr_assert_eq(lease_rule_care(rule, renewal, 30000), LEASE_CARE_SELF);
    cr_assert_eq(lease_rule_care(rule, permit, 2000), LEASE_CARE_RENEW, "every permit has a lease");
    cr_assert_eq(care_for(rule, "aioredlock", 10000), LEASE_CARE_SELF);
    cr_assert_eq(care_for(rule, "aioredlock", 2000), LEASE_CARE_NEVER);
    rule_free(rule);
    rule = rule_of("keys = a\nprolong_explicit = yes\nwatchdog = Redisson:45s\n");
    cr_assert_eq(care_for(rule, "redisson", 45000), LEASE_CARE_SELF);
    cr_assert_eq(care_for(rule, "redisson", 30000), LEASE_CARE_RENEW);
    cr_assert_eq(care_for(rule, "aioredlock", 10000), LEASE_CARE_RENEW);
    rule_free(rule);
    rule = rule_of("keys = a\nlibraries = redisson:renew\n");
    cr_assert_eq(care_for(rule, "redisson", 2000), LEASE_CARE_RENEW, "what is said of a library comes first");
    cr_assert_eq(lease_rule_care(rule, renewal, 30000), LEASE_CARE_RENEW);
    rule_free(rule);
    rule = rule_of("keys = a\nwatchdog =\n");
    cr_assert_eq(care_for(rule, "redisson", 30000), LEASE_CARE_RENEW);
    rule_free(rule);
}

Test(lease_rule, means_the_keys_that_redisson_keeps_permits_in)
{
    static const struct {
        const char *keys, *key;
        bool names;
    } cases[] = {
        {"semaphore:*", "{semaphore:a}:timeout", true},
        {"semaphore:*", "semaphore:{a}:timeout", true},
        {"{a}*", "{a}b:timeout", true},
        {"{a}", "{a}:timeout", true},
        {"a", "{a}:timeout", true},
        {"semaphore:*", "{other:a}:timeout", false},
        {"semaphore:*", "{semaphore:a}:channel", false},
        {"semaphore", "semaphore:timeout", false},
        {"semaphore", "x{semaphore}:timeout", false},
        {"?", "{}:timeout", false},
        {"*a", ":timeout", false},
        {"a", "timeout", false},
        {"{*}:timeout", "{semaphore:a}:timeout", true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *options = conf_format("keys = %s\n", cases[i].keys);
        struct lease_rule *rule = rule_of(options);
        cr_assert_eq(lease_rule_names(rule, slice_of(cases[i].key)), cases[i].names, "%s by %s", cases[i].key,
                     cases[i].keys);
        rule_free(rule);
        free(options);
    }
}
