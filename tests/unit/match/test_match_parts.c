/*
 * The keys of rules that count per key: which part of a key is counted. What the matcher says is compared with what a
 * plain backtracking one says, which is slow and easy to read; and the work it does is counted.
 */
#include "../../rig/rig_random.h"
#include "match/match.h"

#include <criterion/criterion.h>
#include <string.h>

/* ---- the work is counted: the linker sends calls of glob_element() here (--wrap), which all elements take but
 * plain characters ---- */

bool __real_glob_element(const char **at, char character);
bool __wrap_glob_element(const char **at, char character);

static size_t elements_looked_at;

bool __wrap_glob_element(const char **at, char character)
{
    elements_looked_at++;
    return __real_glob_element(at, character);
}

static struct match_keys *keys_of(const char *text)
{
    char problem[CONF_PROBLEM_MAX] = "";
    struct match_keys *keys = match_keys_compile_parts(text, problem);

    cr_assert_not_null(keys, "%s: %s", text, problem);
    return keys;
}

/* ---- examples ---- */

struct example {
    const char *globs;
    const char *key;
    const char *counted; /* NULL: the key does not match */
};

static void assert_example(const struct example *example)
{
    struct match_keys *keys = keys_of(example->globs);
    struct slice key = slice_of(example->key), counted;
    bool found = match_keys_part(keys, key, &counted);

    cr_assert_eq(found, example->counted != NULL, "%s on %s", example->globs, example->key);
    if (found) {
        cr_assert(counted.data >= key.data && counted.data + counted.length <= key.data + key.length);
        cr_assert(counted.length == strlen(example->counted) &&
                      memcmp(counted.data, example->counted, counted.length) == 0,
                  "%s on %s gives %.*s", example->globs, example->key, (int)counted.length, counted.data);
    }
    match_keys_free(keys);
}

Test(match_parts, count_what_stands_for_the_braces)
{
    static const struct example examples[] = {
        {"user:{*}:*", "user:42:x:y", "42"},
        {"user:{*}:*", "user:42", NULL},
        {"user:{*}", "user:42:x:y", "42:x:y"},
        {"*:{*}:*", "a:b:c:d", "b"},
        {"{user}:*", "user:7", "user"},
        {"{user:*}:cart", "user:7:cart:cart", "user:7:cart"},
        {"{*}", "", ""},
        {"{*}", "anything", "anything"},
        {"{}", "", ""},
        {"a{}b", "ab", ""},
        {"*{b*c}*", "abxcxc", "bxc"},
        /* Without braces they are counted whole. */
        {"", "anything", "anything"},
        {"  \t ", "", ""},
        {"user:*", "user:42", "user:42"},
        {"user:*", "session:42", NULL},
        /* Classes and escapes. */
        {"user:{[0-9]*}:*", "user:42:x", "42"},
        {"{[*]}*", "*x", "*"},
        {"[{]{*}[}]", "{tag}", "tag"},
        {"[\\]]{*}", "]a", "a"},
        {"\\{{*}\\}*", "{tag}:x", "tag"},
        {"\\{*\\}", "{tag}", "{tag}"},
        {"\\*{*}", "*a", "a"},
        {"{\\*}*", "**", "*"},
        {"{\\\\}*", "\\a", "\\"},
        {"\\a{*}", "ab", "b"},
        /* Of several the first that matches counts. */
        {"user:{*}:* session:{*}", "session:1:x", "1:x"},
        {"user:{*} user:{*}:*", "user:1:x", "1:x"},
    };

    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        assert_example(&examples[i]);
    }
}

Test(match_parts, of_any_bytes)
{
    struct match_keys *keys = keys_of("{*}:*\xff?");
    static const char key[] = "a\0\r\n:\xff\0\xff\x80";
    struct slice counted;

    cr_assert(match_keys_part(keys, (struct slice){key, sizeof key - 1}, &counted));
    cr_assert(counted.data == key && counted.length == 4);
    cr_assert_not(match_keys_part(keys, (struct slice){key, sizeof key - 2}, &counted));
    match_keys_free(keys);
}

Test(match_parts, of_which_nothing_is_counted_because_they_are_faulty)
{
    static const char *const cases[][2] = {
        {"{a}{b}", "\"{a}{b}\" has more or other braces than one {…}"},
        {"a {x}:{y} b", "\"{x}:{y}\" has more or other braces than one {…}"},
        {"{a{b}}", "\"{a{b}}\" has more or other braces than one {…}"},
        {"}{", "\"}{\" has more or other braces than one {…}"},
        {"{a", "\"{a\" opens a brace that it does not close"},
        {"a{", "\"a{\" opens a brace that it does not close"},
        {"{a\\}", "\"{a\\}\" opens a brace that it does not close"},
        {"{[}]", "\"{[}]\" opens a brace that it does not close"},
        {"{a b}", "\"{a\" opens a brace that it does not close"},
        {"{*} x[", "\"x[\" opens a class with \"[\" that it does not close"},
        {"{*} x\\", "\"x\\\" ends with a backslash"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char problem[CONF_PROBLEM_MAX] = "";
        cr_assert_null(match_keys_compile_parts(cases[i][0], problem), "%s", cases[i][0]);
        cr_assert_str_eq(problem, cases[i][1]);
    }
}

/* ---- against a backtracking matcher ---- */

struct naive {
    const char *key;
    size_t length;
    size_t start, end;
};

static bool naive_match(struct naive *naive, const char *glob, size_t position);

/* Whether the class, of which at stands behind the "[", has the character; *end: behind its "]". No escapes, and only
 * ranges that ascend: that is all the random globs have. */
static bool naive_class(const char *at, char character, const char **end)
{
    bool negated = *at == '^', found = false;

    for (at += negated; *at != ']'; at++) {
        if (at[1] == '-' && at[2] != ']') {
            found = found || (character >= at[0] && character <= at[2]);
            at += 2;
        } else {
            found = found || character == *at;
        }
    }
    *end = at + 1;
    return found != negated;
}

/* The shortest star first, which is what makes its first way the preferred one. */
static bool naive_star(struct naive *naive, const char *behind, size_t position)
{
    for (; position <= naive->length; position++) {
        if (naive_match(naive, behind, position)) {
            return true;
        }
    }
    return false;
}

static bool naive_match(struct naive *naive, const char *glob, size_t position)
{
    const char *behind = glob + 1;

    switch (*glob) {
    case '\0':
        return position == naive->length;
    case '*':
        return naive_star(naive, behind, position);
    case '{':
        naive->start = position;
        return naive_match(naive, behind, position);
    case '}':
        if (!naive_match(naive, behind, position)) {
            return false;
        }
        naive->end = position;
        return true;
    }
    if (position == naive->length) {
        return false;
    }
    bool is = *glob == '?' || naive->key[position] == *glob;
    if (*glob == '[') {
        is = naive_class(glob + 1, naive->key[position], &behind);
    } else if (*glob == '\\') {
        is = naive->key[position] == glob[1];
        behind = glob + 2;
    }
    return is && naive_match(naive, behind, position + 1);
}

static bool naive_find(const char *const *globs, size_t count, const char *key, struct slice *counted)
{
    for (size_t i = 0; i < count; i++) {
        struct naive naive = {.key = key, .length = strlen(key), .end = strlen(key)};
        if (naive_match(&naive, globs[i], 0)) {
            /* Ways that failed may have left a start behind, but the way that succeeded has set its own last. */
            *counted = (struct slice){key + naive.start, naive.end - naive.start};
            return true;
        }
    }
    return false;
}

/* Up to pieces of the list, one after the other. */
static void random_text(uint64_t *seed, char *text, const char *const *list, size_t list_count, size_t pieces)
{
    text[0] = '\0';
    for (size_t count = next_random(seed) % (pieces + 1); count > 0; count--) {
        strcat(text, list[next_random(seed) % list_count]);
    }
}

/* At least one piece; one part of it in braces, or none. */
static void random_glob(uint64_t *seed, char *glob)
{
    static const char *const pieces[] = {"a",     "b",   "*",   "*",    "*",   "?",  "[ab]", "[^a]",
                                         "[a-b]", "\\*", "\\{", "[{*]", "\\a", "a*", "*b"};
    const size_t count = sizeof pieces / sizeof pieces[0];
    char part[64];

    random_text(seed, glob, pieces, count, 4);
    if (next_random(seed) % 4 > 0) {
        random_text(seed, part, pieces, count, 3);
        strcat(strcat(strcat(glob, "{"), part), "}");
        random_text(seed, part, pieces, count, 4);
        strcat(glob, part);
    }
    if (glob[0] == '\0') {
        strcpy(glob, "*");
    }
}

static void compare(struct match_keys *keys, const char *const *globs, size_t count, const char *key, size_t *matches)
{
    struct slice counted = {0}, expected = {0};
    bool expects = naive_find(globs, count, key, &expected);
    bool found = match_keys_part(keys, slice_of(key), &counted);

    cr_assert_eq(found, expects, "%s (of %zu) on \"%s\"", globs[0], count, key);
    if (found) {
        cr_assert(counted.data == expected.data && counted.length == expected.length,
                  "%s (of %zu) on \"%s\" gives \"%.*s\", not \"%.*s\"", globs[0], count, key, (int)counted.length,
                  counted.data, (int)expected.length, expected.data);
        *matches += 1;
    }
}

Test(match_parts, agree_with_a_backtracking_matcher, .timeout = 100)
{
    static const char *const characters[] = {"a", "a", "b", "b", "*", "{"};
    enum { GLOBS_MAX = 3, RULES = 20000, KEYS = 20 };
    char globs[GLOBS_MAX][256], text[GLOBS_MAX * 256 + 8], key[16];
    const char *const list[GLOBS_MAX] = {globs[0], globs[1], globs[2]};
    uint64_t seed = 7;
    size_t matches = 0;

    for (int i = 0; i < RULES; i++) {
        size_t count = 1 + next_random(&seed) % GLOBS_MAX;
        text[0] = '\0';
        for (size_t j = 0; j < count; j++) {
            random_glob(&seed, globs[j]);
            strcat(strcat(text, globs[j]), " ");
        }
        struct match_keys *keys = keys_of(text);
        for (int j = 0; j < KEYS; j++) {
            random_text(&seed, key, characters, sizeof characters / sizeof characters[0], 9);
            compare(keys, list, count, key, &matches);
        }
        match_keys_free(keys);
    }
    cr_assert(matches > RULES * KEYS / 10 && matches < RULES * KEYS / 10 * 9, "%zu of %d match", matches, RULES * KEYS);
}

/* ---- time ---- */

#define LONG_KEY 100000

/* How many elements were looked at for the key. */
static size_t work(struct match_keys *keys, struct slice key, bool *found)
{
    struct slice counted;

    elements_looked_at = 0;
    *found = match_keys_part(keys, key, &counted);
    return elements_looked_at;
}

/* A backtracking matcher would be at these until the sun has burnt out. */
Test(match_parts, take_time_linear_in_the_length_of_the_key, .timeout = 100)
{
    static const char *const globs[] = {
        "*[a]*[a]*[a]*{*}*[b]",
        "*\\a*\\a*\\a*\\a*\\a*\\a*\\a*\\a*{*\\a*\\a*\\a*}*\\a*\\a*\\a*\\a*\\b",
        "*?*?*?*?*{*?*?*?*}*?*?*?[b]",
        "*[ab]*[ab]*{[ab]*}*[ab]*[c]*",
        "*?????????????????????[b]*",
        "{*\\a}\\b*",
        "????{?*??}??[b]",
        "********{********}********[b]",
        "********{********}********b",
    };
    static char key[LONG_KEY];

    memset(key, 'a', sizeof key);
    for (size_t i = 0; i < sizeof globs / sizeof globs[0]; i++) {
        struct match_keys *keys = keys_of(globs[i]);
        bool found;
        size_t half = work(keys, (struct slice){key, LONG_KEY / 2}, &found);
        cr_assert_not(found, "%s", globs[i]);
        size_t whole = work(keys, (struct slice){key, LONG_KEY}, &found);
        cr_assert_not(found, "%s", globs[i]);
        cr_assert_leq(whole, strlen(globs[i]) * LONG_KEY, "%s", globs[i]);
        cr_assert_leq(whole, 2 * half + 1000, "%s: %zu for half of it, %zu for all", globs[i], half, whole);
        match_keys_free(keys);
    }
}

/* As long as an option may be. */
Test(match_parts, of_long_globs, .timeout = 100)
{
    static char glob[2049], key[20000];
    struct slice counted;

    memset(glob, '*', 2048);
    memcpy(glob + 1000, "{a}", 3);
    memset(key, 'b', sizeof key);
    struct match_keys *keys = keys_of(glob);
    cr_assert_not(match_keys_part(keys, (struct slice){key, sizeof key}, &counted));
    key[15000] = 'a';
    cr_assert(match_keys_part(keys, (struct slice){key, sizeof key}, &counted));
    cr_assert(counted.data == key + 15000 && counted.length == 1);
    match_keys_free(keys);
}
