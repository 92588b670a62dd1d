/* Filters: which words are sound, and which subjects pass. */
#include "../../support/address.h"
#include "conf/filter.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME, AGE, ADDRESS };

static const struct filter_field fields[] = {
    {"name", FILTER_TEXT},
    {"age", FILTER_NUMBER},
    {"addr", FILTER_ADDRESS},
};

struct subject {
    const char *name;
    int64_t age;
    const char *host;
    struct sockaddr_storage address;
    char address_text[64];
};

static struct subject subject_of(const char *name, int64_t age, const char *host)
{
    struct subject subject = {.name = name, .age = age, .address = address_of(host)};
    sa_family_t family = subject.address.ss_family;

    snprintf(subject.address_text, sizeof subject.address_text,
             family == AF_INET    ? "%s:5000"
             : family == AF_INET6 ? "[%s]:5000"
                                  : "%s",
             host);
    return subject;
}

static struct filter_value value(const void *context, size_t field)
{
    const struct subject *subject = context;

    switch (field) {
    case NAME:
        return (struct filter_value){.text = subject->name};
    case AGE:
        return (struct filter_value){.number = subject->age};
    default:
        return (struct filter_value){.text = subject->address_text, .address = &subject->address};
    }
}

static bool add(struct filter *filter, struct slice word, char problem[FILTER_PROBLEM_MAX])
{
    return filter_add(filter, fields, sizeof fields / sizeof fields[0], word, problem);
}

/* Words, with bars between them, that this subject passes, and that it does not. */
static const struct {
    const char *name;
    int64_t age;
    const char *host, *passes, *fails;
} rows[] = {
    {"alice", 7, "10.1.2.3",
     "name=alice|NAME=alice|name=a*e|name!=b*|name!=|age=7|age!=8|age>6|age<8|addr=10.0.0.0/8|addr=10.1.2.3|"
     "addr=10.1.2.3:5000|addr=10.1.2.3:*|addr!=11.0.0.0/8",
     "name=alice2|name=Alice|name!=a*|name=|age=8|age>7|age<7|age!=7|addr=11.0.0.0/8|addr=10.1.2.3:5001|addr=unix"},
    {"", -6, "unix", "name=|age=-6|age<7|addr=unix|addr!=10.0.0.0/8", "name!=|age=6|addr=10.0.0.0/8"},
    {"a=b", 0, "::1", "name=a=b|addr=::1|addr=[::1]:5000", "name=a|addr=::2"},
    {"[x]", 0, "unix", "name=[x]", "name=x"},
};

static void expect_words(const struct subject *subject, const char *words, bool passes)
{
    char *copy = strdup(words), *rest = copy;

    for (char *word = strsep(&rest, "|"); word != NULL; word = strsep(&rest, "|")) {
        struct filter filter = {0};
        char problem[FILTER_PROBLEM_MAX] = "";
        cr_assert(filter_is_word(slice_of(word)), "%s", word);
        cr_assert(add(&filter, slice_of(word), problem), "%s: %s", word, problem);
        cr_expect_eq(filter_passes(&filter, fields, value, subject), passes, "%s of %s", word, subject->name);
    }
    free(copy);
}

Test(filter, words)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct subject subject = subject_of(rows[i].name, rows[i].age, rows[i].host);
        expect_words(&subject, rows[i].passes, true);
        expect_words(&subject, rows[i].fails, false);
    }
}

Test(filter, what_is_faulty)
{
    char words[] = "nme=alice|=alice|name<x|name>x|age=x|age=|age>|age=1x|age=0x1|age=99999999999999999999|age!1|age!|"
                   "name!alice|name=[x|addr=[x|age= 1|addr>10|name=a\n|name=a\x01[\n|age|",
         *rest = words;
    char problem[FILTER_PROBLEM_MAX];

    for (char *word = strsep(&rest, "|"); word != NULL; word = strsep(&rest, "|")) {
        struct filter filter = {0};
        problem[0] = '\0';
        cr_assert_not(add(&filter, slice_of(word), problem), "%s", word);
        cr_assert_neq(problem[0], '\0', "%s", word);
        for (const char *c = problem; *c != '\0'; c++) {
            cr_assert(*c >= ' ' && *c < 0x7f, "%s", word);
        }
        cr_assert_eq(filter.count, 0);
    }
    struct filter filter = {0};
    cr_assert_not(add(&filter, slice_of("port=1"), problem));
    cr_assert(strstr(problem, "name age addr") != NULL, "those that there are: %s", problem);
    cr_assert_not(add(&filter, (struct slice){"name=a\0b", 8}, problem), "a NUL");
}

Test(filter, is_bounded)
{
    char word[1024] = "name=", problem[FILTER_PROBLEM_MAX];
    struct filter filter = {0};

    memset(word + 5, 'x', sizeof word - 5);
    cr_assert_not(add(&filter, (struct slice){word, 5 + FILTER_TEXT_MAX + 1}, problem));
    for (size_t i = 0; i < FILTER_WORDS_MAX; i++) {
        cr_assert(add(&filter, (struct slice){word, 5 + FILTER_TEXT_MAX}, problem));
    }
    cr_assert_not(add(&filter, slice_of("name=x"), problem));
}
