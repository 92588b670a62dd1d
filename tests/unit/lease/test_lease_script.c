/* The scripts of lock libraries: known by digest, by text, by idiom, and what calls of them mean. */
#include "lease/lease_registry.h"
#include "lease_request.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- rows ---- */

/* Which another one sends that is in front of this one, with any keys or none, by digest or as a text. */
Test(lease_shape_scripts, of_headgate_itself)
{
    for (const struct script *own = scripts; own->name != NULL; own++) {
        bool releases = strncmp(own->name, "lease_release", 13) == 0 || strcmp(own->name, "delifeq") == 0;
        for (int keys = 0; keys < 2; keys++) {
            const char *count = keys == 0 ? "0" : "1";
            const struct slice words[] = {
                slice_of("EVAL"), {own->text, own->length}, slice_of(count), slice_of("k"), slice_of("t")};
            struct request made = request_of_words(words, sizeof words / sizeof words[0]);
            request_read(&made);
            cr_assert_eq(made.shape.action, releases && keys == 1 ? LEASE_RELEASE : LEASE_NOTHING, "%s", own->name);
            free(made.bytes);
            char text[128];
            snprintf(text, sizeof text, "EVALSHA %s %s k t", own->sha1, count);
            cr_assert_eq(request_action(text), releases && keys == 1 ? LEASE_RELEASE : LEASE_NOTHING, "%s", own->name);
        }
    }
}

Test(lease_shape_scripts, with_counts_that_are_wrong)
{
    static const char counts[] = "-1|0|5|4|x||+1|01|1.0|2147483648|4294967297|9223372036854775807|9223372036854775808";
    char text[256];

    for (size_t i = 0; lease_shape_script(i) != NULL; i++) {
        for (size_t j = 0; word_of(counts, j).data != NULL; j++) {
            struct slice count = word_of(counts, j);
            sprintf(text, "evalsha %s %.*s 1 2 3", lease_shape_script(i)->digest, (int)count.length, count.data);
            cr_assert_eq(request_action(text), LEASE_NOTHING, "%s: %s", lease_shape_script(i)->name, text);
        }
        sprintf(text, "evalsha %s", lease_shape_script(i)->digest);
        cr_assert_eq(request_action(text), LEASE_NOTHING);
        /* All are keys, no value is left. */
        sprintf(text, "evalsha %s 3 1 2 3", lease_shape_script(i)->digest);
        cr_assert_eq(request_action(text), lease_shape_script(i)->token == 0 ? LEASE_FORCE_RELEASE : LEASE_NOTHING);
    }
}

Test(lease_shape_scripts, of_unknown_digests)
{
    cr_assert_eq(request_action("evalsha " DIGEST_OF_NOTHING " 1 k t 5"), LEASE_UNSEEN);
    cr_assert_eq(request_action("evalsha " DIGEST_OF_NOTHING " 0 k t 5"), LEASE_UNSEEN);
    cr_assert_eq(request_action("evalsha " DIGEST_OF_NOTHING " 0"), LEASE_UNSEEN);
    cr_assert_eq(request_action("evalsha " DIGEST_OF_NOTHING " -1 k"), LEASE_NOTHING);
    cr_assert_eq(request_action("evalsha " DIGEST_OF_NOTHING " 2 k"), LEASE_NOTHING);
    cr_assert_eq(request_action("evalsha_ro " DIGEST_OF_NOTHING " 0 k"), LEASE_NOTHING);
    cr_assert_eq(request_action("fcall name 1 k t 5"), LEASE_UNSEEN);
    cr_assert_eq(request_action("evalsha 96da70f7716f27d278a5218544df37fd8b0a5e4 1 k t 5"), LEASE_UNSEEN);
    cr_assert_eq(request_action("evalsha 96da70f7716f27d278a5218544df37fd8b0a5e4c0 1 k t 5"), LEASE_UNSEEN);
    cr_assert_eq(request_action("evalsha  1 k t 5"), LEASE_UNSEEN);
    cr_assert_eq(request_action("eval 96da70f7716f27d278a5218544df37fd8b0a5e4c 1 k t 5"), LEASE_UNSEEN);
}

/* All of its arguments may be keys, of which so many are looked at; and if it declares none, others as well. */
Test(lease_shape_scripts, what_an_unknown_one_may_touch)
{
    static const struct {
        const char *text;
        int values; /* behind it */
        uint32_t keys;
        bool undeclared;
    } cases[] = {
        {"fcall name 1 k", 0, 1, false},
        {"fcall name 1 k", 2, 3, false},
        {"fcall name 2 k l", LEASE_VALUES_MAX, LEASE_VALUES_MAX + 2, false},
        {"fcall name 2 k l", LEASE_VALUES_MAX + 1, LEASE_VALUES_MAX + 2, true},
        {"fcall name 0", 0, 0, true},
        {"fcall name 0", 3, 3, true},
        {"eval text 0", LEASE_VALUES_MAX + 7, LEASE_VALUES_MAX, true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct slice words[LEASE_VALUES_MAX + 16];
        char text[32];
        size_t count = 0;
        snprintf(text, sizeof text, "%s", cases[i].text);
        for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
            words[count++] = slice_of(word);
        }
        for (int value = 0; value < cases[i].values; value++) {
            words[count++] = slice_of("v");
        }
        struct request made = request_of_words(words, count);
        request_read(&made);
        cr_assert_eq(made.shape.action, LEASE_UNSEEN, "%s", cases[i].text);
        cr_assert_eq(made.shape.key_count, cases[i].keys, "%s", cases[i].text);
        cr_assert_eq(made.shape.undeclared, cases[i].undeclared, "%s", cases[i].text);
        request_check_runs(&made);
        free(made.bytes);
    }
}

/* Of texts of lengths about those of SHA-1's blocks. */
Test(lease_shape_scripts, digests)
{
    static const struct {
        size_t length;
        const char *digest;
    } cases[] = {{0, DIGEST_OF_NOTHING},
                 {63, "03f09f5b158a7a8cdad920bddc29b81c18a551f5"},
                 {64, "0098ba824b5c16427bd7a1122a5a442a25ec644d"},
                 {1000, "291e9a6c66994949b57ba5e650361e98fc36b1ba"}};
    char digest[LEASE_DIGEST_LENGTH + 1], text[1000];

    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lease_shape_digest((struct slice){text, cases[i].length}, digest);
        cr_assert_str_eq(digest, cases[i].digest);
    }
}

/* ---- texts ---- */

#define HELD "if redis.call('get', KEYS[1]) == ARGV[1] then "

static const struct lease_script *learn(const char *text)
{
    return lease_shape_learn(slice_of(text));
}

Test(lease_shape_texts, idioms_in_any_dress)
{
    static const struct {
        const char *text;
        enum lease_action action;
        enum lease_unit unit;
    } cases[] = {
        {HELD "return redis.call('del', KEYS[1]) else return 0 end", LEASE_RELEASE, LEASE_UNIT_NONE},
        {HELD "return redis.call('unlink', KEYS[1]) end return 0", LEASE_RELEASE, LEASE_UNIT_NONE},
        {HELD "return redis.call('DEL', KEYS[1]); end;", LEASE_RELEASE, LEASE_UNIT_NONE},
        {"\n\t" HELD "\r\n return  redis.call ( \"Del\" ,KEYS[ 1 ])\n else\n  return 0;\n end;\n", LEASE_RELEASE,
         LEASE_UNIT_NONE},
        {HELD "return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end", LEASE_EXTEND, LEASE_UNIT_MS},
        {HELD "return redis.call(\"EXPIRE\",KEYS[1],ARGV[2]) else return 0 end", LEASE_EXTEND, LEASE_UNIT_S},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct lease_script *script = learn(cases[i].text);
        cr_assert_not_null(script, "%s", cases[i].text);
        cr_assert_not(lease_script_is_of(script, slice_of("")), "no library's");
        cr_assert(script->action == cases[i].action && script->unit == cases[i].unit, "%s", cases[i].text);
        cr_assert(script->key == 1 && script->token == 1 && script->kind == LEASE_STRING);
    }
}

Test(lease_shape_texts, what_is_no_idiom)
{
    static const char *const texts[] = {
        "",
        "return 1",
        "if",
        HELD,
        HELD "return redis.call(",
        HELD "return redis.call('del', KEYS[1])",
        HELD "return redis.call('del', KEYS[2]) else return 0 end",
        HELD "return redis.call('del', KEYS[1], KEYS[2]) else return 0 end",
        HELD "return redis.call('del', KEYS[1]) else return 1 end",
        HELD "return redis.call('del', KEYS[1]) else return 0 end return 1",
        HELD "return redis.call('set', KEYS[1], 'x') else return 0 end",
        HELD "return redis.call('pexpire', KEYS[1], ARGV[3]) else return 0 end",
        HELD "return redis.call('pexpire', KEYS[1], ARGV[2] + 1) else return 0 end",
        HELD "return redis.call(' del', KEYS[1]) else return 0 end",
        "if redis.call('get', keys[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        "if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        "if redis.call('get', KEYS[1]) == ARGV[2] then return redis.call('del', KEYS[1]) else return 0 end",
        "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        cr_assert_null(learn(texts[i]), "%s", texts[i]);
    }
    cr_assert_null(lease_shape_learn((struct slice){NULL, 0}));
}

/* A text that begins as an idiom and goes on as it likes is none, and is not read past its end. */
Test(lease_shape_texts, cut_and_changed)
{
    static const char text[] = HELD "return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
    static const char likely[] = " ;\"'()[]12,AKelsendr0";
    size_t length = sizeof text - 1;
    uint32_t state = 7;

    for (int i = 0; i < 20000; i++) {
        size_t kept = next_random(&state) % (length + 1);
        char *exact = malloc(kept + 1);
        char *changed = exact + 1;
        memcpy(changed, text, kept);
        for (uint32_t changes = next_random(&state) % 3; changes > 0 && kept > 0; changes--) {
            changed[next_random(&state) % kept] = likely[next_random(&state) % (sizeof likely - 1)];
        }
        const struct lease_script *script = lease_shape_learn((struct slice){changed, kept});
        cr_assert(script == NULL || (script->action == LEASE_EXTEND && kept + 20 > length), "%.*s", (int)kept, changed);
        free(exact);
    }
}

/* ---- what is learned ---- */

Test(lease_shape_scripts, are_remembered_but_not_without_end)
{
    struct lease_registry *registry = lease_registry_new(1);
    const struct lease_script script = {.name = "a"}, other = {.name = "b"};
    char digest[LEASE_DIGEST_LENGTH + 1];

    cr_assert_null(lease_registry_script(registry, slice_of(DIGEST_OF_NOTHING)));
    for (size_t user = 1; user <= 3; user++) {
        lease_registry_learn(registry, DIGEST_OF_NOTHING, &script, user < 3 ? user : 2);
    }
    for (int i = 0; i < 5000; i++) {
        snprintf(digest, sizeof digest, "%040d", i);
        lease_registry_learn(registry, digest, &other, 1);
    }
    cr_assert_eq(lease_registry_script(registry, slice_of(digest)), &other);
    cr_assert_null(lease_registry_script(registry, slice_of("0000000000000000000000000000000000000000")));
    cr_assert_eq(lease_registry_script(registry, slice_of(DIGEST_OF_NOTHING)), &script, "another user's");
    lease_registry_free(registry);
}
