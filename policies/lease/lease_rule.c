#include "lease/lease_rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What stands in the ini file. Times in ms. */
struct lease_options {
    char *keys;
    int watched; /* enum lease_watched, and so on */
    int64_t ttl;
    char *renew;
    int64_t max_hold;
    int owner;
    int64_t grace;
    int farewell;
    int score;
    int unit;
    int64_t limit;
    char *libraries;
    char *watchdog;
    int prolong_explicit;
    char *servers;
};

/* The same of [lease]. */
struct lease_all_options {
    int64_t max_leases;
};

#define TEXT_MAX 2048
#define SECOND_MS INT64_C(1000)
#define DAY_MS (INT64_C(86400) * SECOND_MS)
#define PARTS_MAX 1000
#define PERMITS_MAX 1000000
#define NAMED(option, field) .name = (option), .offset = offsetof(struct lease_options, field), .reloadable = true
#define FIELD(field) NAMED(#field, field)

static const char *const watched_words[] = {"auto", "string", "hash", "semaphore", NULL};
static const char *const owner_words[] = {"process", "connection", "client", NULL};
static const char *const farewell_words[] = {"expire", "release", NULL};
static const char *const score_words[] = {"auto", "acquired", "expires", NULL};
static const char *const unit_words[] = {"auto", "s", "ms", "us", NULL};
static const char *const care_words[] = {"renew", "self", "never", NULL};

static const struct conf_option option_table[] = {
    {FIELD(keys), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help = "Globs of the keys that are locks or semaphores, as in KEYS. They must be named: not every SET NX is a\n"
             "lock."},
    {NAMED("kind", watched), .type = CONF_WORD, .words = watched_words, .initial = "auto",
     .help = "What is watched: string (SET NX and scripts that take strings), hash (Redisson's locks), semaphore\n"
             "(sorted sets), or auto for all of them."},
    {FIELD(ttl), .type = CONF_TIME, .min = 100, .max = DAY_MS, .initial = "30s",
     .help = "The lease of what was taken without one: by SETNX without EXPIRE, or as a permit whose lease is not to\n"
             "be seen."},
    {FIELD(renew), .type = CONF_STRING, .min = 1, .max = 16, .initial = "1/3",
     .help = "After which part of the lease it is renewed."},
    {FIELD(max_hold), .type = CONF_TIME, .min = 100, .max = 366 * DAY_MS, .initial = "1h",
     .help = "Nothing is renewed beyond this time after a lock was taken: a program that hangs must not hold it for\n"
             "ever."},
    {FIELD(owner), .type = CONF_WORD, .words = owner_words, .initial = "process",
     .help =
         "Whose connections show that the holder lives: process, those of the process that took the lock, or where\n"
         "it cannot be told, the connection; connection, the one that took it; client, those of the same address,\n"
         "user and name (CLIENT SETNAME), or without a name, the connection."},
    {FIELD(grace), .type = CONF_TIME, .min = 1, .max = DAY_MS, .zero = "none", .initial = "5s",
     .help = "How long an owner without connections is waited for. Nothing is renewed meanwhile."},
    {NAMED("on_owner_gone", farewell), .type = CONF_WORD, .words = farewell_words, .initial = "expire",
     .help = "What becomes of its locks then: expire, they end with their lease; release, they are released at once."},
    {FIELD(score), .type = CONF_WORD, .words = score_words, .initial = "auto",
     .help = "What the scores of a semaphore say: when a permit was acquired, or when it expires."},
    {FIELD(unit), .type = CONF_WORD, .words = unit_words, .initial = "auto", .help = "The unit of those scores."},
    {FIELD(limit), .type = CONF_INTEGER, .max = PERMITS_MAX, .zero = "not said", .initial = "0",
     .help = "How many permits a semaphore has whose clients go by ZRANK. Attempts with a higher rank are no permits,\n"
             "and are not kept. If it is not said, they count once they were kept for a third of their lease."},
    {FIELD(libraries), .type = CONF_STRING, .max = TEXT_MAX, .initial = "redlock.net:self redis-semaphore:self",
     .help =
         "LIBRARY:renew, LIBRARY:self (it renews its locks itself, and they are left to it) or LIBRARY:never (they\n"
         "are no business of the watchdog), for libraries that are told by their scripts."},
    {FIELD(watchdog), .type = CONF_STRING, .max = TEXT_MAX, .initial = "redisson:30s aioredlock:10s",
     .help = "LIBRARY:TIME, the lease that a library gives to locks for which none was asked, and which it renews\n"
             "itself: they are left to it. Another lease was asked for: see prolong_explicit."},
    {FIELD(prolong_explicit), .type = CONF_TOGGLE, .initial = "off",
     .help = "Whether locks of those libraries for which a lease was asked, as by lock(2, SECONDS) of Redisson, are\n"
             "renewed. If not, they end when their owner wished."},
    CONF_SERVERS_OPTION(struct lease_options, servers),
};

static const struct conf_option all_option_table[] = {
    {.name = "max_leases",
     .offset = offsetof(struct lease_all_options, max_leases),
     .reloadable = true,
     .type = CONF_INTEGER,
     .min = 1000,
     .max = 100000000,
     .initial = "150000",
     .help =
         "How many locks and permits are watched. Each counts as often as it is renewed in ten seconds (with a lease\n"
         "of 30s once, of 3s ten times), for each of its keys, and once for each KiB of keys and token; an owner's\n"
         "at most a third of what is left beside them. Requests under way, in KiB, have the same bound."},
};

/* ---- reading ---- */

static bool read_number(const char **text, int64_t *number)
{
    char *end;
    bool is_digit = **text >= '0' && **text <= '9';

    *number = is_digit ? strtoll(*text, &end, 10) : 0;
    if (!is_digit || *number < 1 || *number > PARTS_MAX) {
        return false;
    }
    *text = end;
    return true;
}

/* "1/3": more than nothing and less than all. */
static bool read_part(const char *text, int64_t *part, int64_t *whole)
{
    return read_number(&text, part) && *text++ == '/' && read_number(&text, whole) && *text == '\0' && *part < *whole;
}

/* "LIBRARY:CARE" */
static bool read_care(struct slice word, struct slice *library, enum lease_care *care)
{
    const char *colon = word.length > 0 ? memchr(word.data, ':', word.length) : NULL;

    if (colon == NULL || colon == word.data) {
        return false;
    }
    *library = (struct slice){word.data, (size_t)(colon - word.data)};
    struct slice said = {colon + 1, word.length - library->length - 1};
    for (size_t i = 0; care_words[i] != NULL; i++) {
        if (slice_is(said, care_words[i])) {
            *care = (enum lease_care)i;
            return true;
        }
    }
    return false;
}

static bool is_library(struct slice name)
{
    const char *library;

    for (size_t i = 0; (library = lease_script_library(i)) != NULL; i++) {
        if (slice_is_word(name, library)) {
            return true;
        }
    }
    return false;
}

/* "LIBRARY:TIME", of a library whose scripts are known. */
static bool read_watchdog(struct slice word, struct slice *library, int64_t *lease_ms)
{
    static const struct conf_option time = {.name = "watchdog", .type = CONF_TIME, .min = 1, .max = DAY_MS};
    const char *colon = word.length > 0 ? memchr(word.data, ':', word.length) : NULL;
    char text[32], problem[CONF_PROBLEM_MAX];

    if (colon == NULL || (size_t)(word.data + word.length - colon) > sizeof text) {
        return false;
    }
    *library = (struct slice){word.data, (size_t)(colon - word.data)};
    snprintf(text, sizeof text, "%.*s", (int)(word.length - library->length - 1), colon + 1);
    return conf_value_set(&time, lease_ms, text, problem) && is_library(*library);
}

static bool check_watchdog(const char *text, char problem[CONF_PROBLEM_MAX])
{
    struct slice word, library;
    int64_t lease_ms = 0;

    while (words_next(&text, &word)) {
        if (!read_watchdog(word, &library, &lease_ms)) {
            snprintf(problem, CONF_PROBLEM_MAX, "\"%.*s\" is not LIBRARY:TIME of a library whose scripts are known",
                     (int)(word.length > 64 ? 64 : word.length), word.data);
            return false;
        }
    }
    return true;
}

static bool check_libraries(const char *text, char problem[CONF_PROBLEM_MAX])
{
    struct slice word, library;
    enum lease_care care;

    if (!words_check(text, problem)) {
        return false;
    }
    while (words_next(&text, &word)) {
        if (!read_care(word, &library, &care)) {
            snprintf(problem, CONF_PROBLEM_MAX, "\"%.*s\" is not LIBRARY:CARE",
                     (int)(word.length > 64 ? 64 : word.length), word.data);
            return false;
        }
        if (!is_library(library)) {
            snprintf(problem, CONF_PROBLEM_MAX, "\"%.*s\" is no library whose scripts are known",
                     (int)(library.length > 64 ? 64 : library.length), library.data);
            return false;
        }
    }
    return true;
}

/* ---- checking and compiling ---- */

/* The name of the option that is at fault, or NULL. Either way the rule is to be cleared. */
static const char *compile(struct lease_rule *rule, const struct lease_options *options, char problem[CONF_PROBLEM_MAX],
                           const char **expected)
{
    *rule = (struct lease_rule){
        .terms =
            {
                .ttl_us = options->ttl * 1000,
                .max_hold_us = options->max_hold * 1000,
                .grace_us = options->grace * 1000,
                .limit = (uint32_t)options->limit,
                .owner = (enum lease_owner_kind)options->owner,
                .farewell = (enum lease_farewell)options->farewell,
            },
        .watched = (enum lease_watched)options->watched,
        .score = (enum lease_score_meaning)options->score,
        .unit = (enum lease_score_unit)options->unit,
        .libraries = conf_format("%s", options->libraries),
        .watchdog = conf_format("%s", options->watchdog),
        .prolong_explicit = options->prolong_explicit != 0,
    };
    *expected = MATCH_KEYS_EXPECTED;
    rule->keys = match_keys_compile(options->keys, problem);
    if (rule->keys == NULL) {
        return "keys";
    }
    if (match_keys_all(rule->keys)) {
        snprintf(problem, CONF_PROBLEM_MAX, "is not set");
        *expected = "globs of the keys that are locks";
        return "keys";
    }
    if (!read_part(options->renew, &rule->terms.renew, &rule->terms.renew_of)) {
        snprintf(problem, CONF_PROBLEM_MAX, "\"%s\" is no part of a whole", options->renew);
        *expected = "two numbers up to 1000, the first one less than the other, such as 1/3";
        return "renew";
    }
    if (!check_watchdog(options->watchdog, problem)) {
        *expected = "words such as redisson:30s";
        return "watchdog";
    }
    *expected = "words such as redisson:renew, redlock.net:self or some-library:never";
    return check_libraries(options->libraries, problem) ? NULL : "libraries";
}

static const char *check_rule(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    struct lease_rule rule;
    const char *at_fault = compile(&rule, values, problem, expected);

    lease_rule_clear(&rule);
    return at_fault;
}

static bool covers(const struct conf_rule *earlier, const struct conf_rule *later)
{
    const struct lease_options *first = earlier->values, *second = later->values;

    return match_keys_cover(first->keys, second->keys);
}

/* Whether some of its keys are those of a rule before it, which thus counts for them. */
static bool is_partly_covered(const struct conf_rule *rule, const struct conf_rule *all, char problem[CONF_PROBLEM_MAX])
{
    const struct lease_options *options = rule->values;
    struct slice glob;

    for (; all != rule; all = all->next) {
        const struct lease_options *earlier = all->values;
        if (all->section == rule->section && match_keys_hide(earlier->keys, options->keys, &glob)) {
            snprintf(problem, CONF_PROBLEM_MAX, "never applies to %.*s: [%s:%s] before it takes these keys",
                     (int)(glob.length > 64 ? 64 : glob.length), glob.data, all->section->name, all->name);
            return true;
        }
    }
    return false;
}

static bool warn_of_rule(const struct conf_rule *rule, const struct conf_rule *all, char problem[CONF_PROBLEM_MAX])
{
    const struct lease_options *options = rule->values;
    struct match_keys *keys = match_keys_compile(options->keys, problem);
    /* A name that no glob for locks has. */
    bool is_all = match_keys_is(keys, (struct slice){"\1", 1});

    match_keys_free(keys);
    if (is_all) {
        snprintf(problem, CONF_PROBLEM_MAX,
                 "watches every key: what programs keep for a while by SET NX EX is renewed like a lock");
        return true;
    }
    if (options->max_hold < options->ttl) {
        snprintf(problem, CONF_PROBLEM_MAX,
                 "max_hold is shorter than ttl, which locks get that are taken without a time to live");
        return true;
    }
    return match_keys_warn(options->keys, problem) || match_is_covered(rule, all, covers, problem) ||
           is_partly_covered(rule, all, problem);
}

static bool runs_scripts(const struct conf_rule *rule)
{
    (void)rule;
    return true;
}

#define WAIT_INSTEAD "WAIT, sent by the application behind the command that takes the lock"

static const struct conf_former former[] = {
    {"confirm", WAIT_INSTEAD},
    {"confirm_wait", WAIT_INSTEAD},
    {NULL, NULL},
};

const struct conf_section lease_section = {
    .name = "lease",
    .has_rules = true,
    .options = option_table,
    .option_count = sizeof option_table / sizeof option_table[0],
    .values_size = sizeof(struct lease_options),
    .help = "Locks and semaphores that do not expire under a client that still holds them. The first rule of the file\n"
            "whose keys match a lock is the one that counts.",
    .check = check_rule,
    .warns = warn_of_rule,
    .runs_scripts = runs_scripts,
    .former = former,
};

const struct conf_section lease_all_section = {
    .name = "lease",
    .options = all_option_table,
    .option_count = sizeof all_option_table / sizeof all_option_table[0],
    .values_size = sizeof(struct lease_all_options),
    .help = "The bound on what is watched by all rules together, of each server.",
};

size_t lease_rule_most(const struct conf_rule *sections)
{
    struct lease_all_options options = {0};
    const struct conf_rule *section = conf_rules_first(sections, &lease_all_section);

    conf_values_default(&lease_all_section, &options);
    return (size_t)(section != NULL ? ((const struct lease_all_options *)section->values)->max_leases
                                    : options.max_leases);
}

void lease_rule_make(struct lease_rule *rule, const struct conf_rule *from)
{
    char problem[CONF_PROBLEM_MAX];
    const char *expected;

    /* It was sound when the file was read. */
    (void)compile(rule, from->values, problem, &expected);
    snprintf(rule->terms.rule, sizeof rule->terms.rule, "%s", from->name);
}

void lease_rule_clear(struct lease_rule *rule)
{
    match_keys_free(rule->keys);
    free(rule->libraries);
    free(rule->watchdog);
}

/* ---- asking ---- */

bool lease_rule_watches(const struct lease_rule *rule, enum lease_kind kind)
{
    switch (kind) {
    case LEASE_STRING:
    case LEASE_STRINGS:
        return rule->watched == LEASE_WATCH_AUTO || rule->watched == LEASE_WATCH_STRINGS;
    case LEASE_HASH:
    case LEASE_READ_LOCK:
        return rule->watched == LEASE_WATCH_AUTO || rule->watched == LEASE_WATCH_HASHES;
    case LEASE_SEMAPHORE_BY_START:
    case LEASE_SEMAPHORE_BY_EXPIRY:
        return rule->watched == LEASE_WATCH_AUTO || rule->watched == LEASE_WATCH_SEMAPHORES;
    default:
        return true;
    }
}

/* "{NAME}:timeout", or "NAME:timeout" if there are braces in NAME. */
static bool names_helper(const struct lease_rule *rule, struct slice key)
{
    static const char suffix[] = ":timeout";
    size_t length = sizeof suffix - 1;

    if (key.length < length + 2 || key.data[key.length - 1] != suffix[length - 1] ||
        memcmp(key.data + key.length - length, suffix, length) != 0) {
        return false;
    }
    struct slice name = {key.data, key.length - length};
    struct slice inner = {name.data + 1, name.length - 2};
    bool is_wrapped = name.data[0] == '{' && name.data[name.length - 1] == '}';

    return (is_wrapped && match_keys_is(rule->keys, inner)) ||
           (memchr(name.data, '{', name.length) != NULL && match_keys_is(rule->keys, name));
}

bool lease_rule_names(const struct lease_rule *rule, struct slice key)
{
    return match_keys_is(rule->keys, key) || names_helper(rule, key);
}

const struct lease_rule *lease_rule_find(const struct lease_rule *rules, size_t count, struct slice key)
{
    for (size_t i = 0; i < count; i++) {
        if (lease_rule_names(&rules[i], key)) {
            return &rules[i];
        }
    }
    return NULL;
}

/* What the rule says of the library itself. */
static bool said_of(const struct lease_rule *rule, const struct lease_script *script, enum lease_care *care)
{
    const char *text = rule->libraries;
    struct slice word, library;
    bool said = false;

    while (words_next(&text, &word)) {
        enum lease_care found;
        if (read_care(word, &library, &found) && lease_script_is_of(script, library)) {
            *care = found;
            said = true;
        }
    }
    return said;
}

/* The lease of locks for which none was asked; 0: the library has no such locks. */
static int64_t watchdog_of(const struct lease_rule *rule, const struct lease_script *script)
{
    const char *text = rule->watchdog;
    struct slice word, library;
    int64_t lease_ms = 0;

    while (words_next(&text, &word)) {
        int64_t found = 0;
        if (read_watchdog(word, &library, &found) && lease_script_is_of(script, library)) {
            lease_ms = found;
        }
    }
    return lease_ms;
}

enum lease_care lease_rule_care(const struct lease_rule *rule, const struct lease_script *script, int64_t lease_ms)
{
    enum lease_care care = LEASE_CARE_RENEW;

    if (script == NULL || script->library == NULL || said_of(rule, script, &care)) {
        return care;
    }
    /* All permits have a lease that was asked for: to renew them is what a rule for them means. */
    bool is_permit = script->kind == LEASE_SEMAPHORE_BY_START || script->kind == LEASE_SEMAPHORE_BY_EXPIRY;
    int64_t watchdog_ms = is_permit ? 0 : watchdog_of(rule, script);
    if (watchdog_ms == 0) {
        return LEASE_CARE_RENEW;
    }
    if (script->action == LEASE_EXTEND || lease_ms == watchdog_ms) {
        return LEASE_CARE_SELF;
    }
    return rule->prolong_explicit ? LEASE_CARE_RENEW : LEASE_CARE_NEVER;
}
