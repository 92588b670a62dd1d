/* Sections beside [headgate]: rules with names, each with a structure of its own, by the table that a policy brings. */
#include "conf_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_TEXT "text of up to 20 bytes, in double quotes if it holds ';' or '#' after a blank"

struct fruit {
    char *colour;
    int64_t weight;
    char *secret_seed;
    int ripe;
};

static const struct conf_option fruit_options[] = {
    {.name = "colour",
     .type = CONF_STRING,
     .offset = offsetof(struct fruit, colour),
     .max = 20,
     .initial = "green",
     .help = "How it looks."},
    {.name = "weight",
     .type = CONF_INTEGER,
     .offset = offsetof(struct fruit, weight),
     .min = 1,
     .max = 100,
     .initial = "7",
     .help = "In grams."},
    {.name = "secret_seed",
     .type = CONF_STRING,
     .offset = offsetof(struct fruit, secret_seed),
     .max = 20,
     .initial = "",
     .secret = true,
     .reloadable = true,
     .help = "What is inside."},
    {.name = "ripe",
     .type = CONF_TOGGLE,
     .offset = offsetof(struct fruit, ripe),
     .initial = "off",
     .help = "Whether it may be eaten."},
};

/* No green one is heavy, and a secret seed is not "bad". */
static const char *check_fruit(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    const struct fruit *fruit = values;

    if (strcmp(fruit->colour, "green") == 0 && fruit->weight > 50) {
        snprintf(problem, CONF_PROBLEM_MAX, "is too heavy for a green one");
        *expected = "at most 50";
        return "weight";
    }
    if (strcmp(fruit->secret_seed, "bad") == 0) {
        snprintf(problem, CONF_PROBLEM_MAX, "is bad");
        *expected = "a good one";
        return "secret_seed";
    }
    return NULL;
}

static const struct conf_section fruit_section = {
    .name = "fruit",
    .has_rules = true,
    .options = fruit_options,
    .option_count = 4,
    .values_size = sizeof(struct fruit),
    .check = check_fruit,
};

static const struct conf_section basket_section = {
    .name = "basket",
    .options = fruit_options,
    .option_count = 2,
    .values_size = sizeof(struct fruit),
};

static const struct conf_section *const sections[] = {&fruit_section, &basket_section, NULL};

static struct conf *load(const char *text, struct conf_faults *faults)
{
    return load_conf(text, sections, faults);
}

static struct conf *load_sound(const char *text)
{
    struct conf_faults faults;
    struct conf *conf = load(text, &faults);

    cr_assert_not_null(conf, "%s", faults.count > 0 ? faults.lines[0] : "");
    conf_faults_free(&faults);
    return conf;
}

/* Expects these faults, each without what stands before "h.ini". */
static void assert_faults(const char *text, size_t count, const char *const *expected)
{
    struct conf_faults faults;

    cr_assert_null(load(text, &faults), "%s", text);
    for (size_t i = 0; i < faults.count && i < count; i++) {
        cr_assert_str_eq(strstr(faults.lines[i], "h.ini"), expected[i]);
    }
    cr_assert_eq(faults.count, count, "%zu faults in %s", faults.count, text);
    conf_faults_free(&faults);
}

static void assert_fault(const char *text, const char *expected)
{
    assert_faults(text, 1, &expected);
}

static const struct fruit *fruit_of(const struct conf_rule *rule)
{
    cr_assert_not_null(rule);
    return rule->values;
}

Test(rules, stand_in_the_order_of_the_file_with_their_defaults)
{
    struct conf *conf = load_sound("[fruit:pear]\nweight = 3\n\n[headgate]\nthreads = 2\n[fruit:apple_2.0-x]\n"
                                   "colour = red\n[basket]\n");
    const struct conf_rule *pear = conf->rules, *apple = pear->next, *basket = apple->next;

    cr_assert_eq(conf->threads, 2);
    cr_assert_eq(pear->section, &fruit_section);
    cr_assert_str_eq(pear->name, "pear");
    cr_assert_eq(pear->line, 1);
    cr_assert_eq(fruit_of(pear)->weight, 3);
    cr_assert_str_eq(fruit_of(pear)->colour, "green");
    cr_assert_str_eq(apple->name, "apple_2.0-x");
    cr_assert_eq(apple->line, 6);
    cr_assert_eq(fruit_of(apple)->weight, 7);
    cr_assert_str_eq(fruit_of(apple)->colour, "red");
    cr_assert_eq(basket->section, &basket_section);
    cr_assert_str_eq(basket->name, "");
    cr_assert_null(basket->next);
    conf_free(conf);
}

Test(rules, are_faulty_like_any_option)
{
    const char *const expected[] = {
        "h.ini:2: [fruit:pear] weight = 101: is too large; expected a number from 1 to 100",
        "h.ini:3: [fruit:pear] color = ********: unknown option; expected a known option, perhaps \"colour\"",
        "h.ini:5: [fruit:pear] colour = blue: given on line 4 already; expected it once",
        ("h.ini:6: [fruit:pear] secret_seed = ********: has 21 bytes; expected " SHORT_TEXT),
    };

    assert_faults("[fruit:pear]\nweight = 101\ncolor = red\ncolour = red\ncolour = blue\n"
                  "secret_seed = 123456789012345678901\n",
                  4, expected);
}

Test(rules, are_looked_at_as_a_whole)
{
    assert_fault("[fruit:a]\nweight = 51\n",
                 "h.ini:2: [fruit:a] weight = 51: is too heavy for a green one; expected at "
                 "most 50");
    assert_fault("[fruit:a]\nsecret_seed = bad\n",
                 "h.ini:2: [fruit:a] secret_seed = ********: is bad; expected a good one");
    conf_free(load_sound("[fruit:a]\nweight = 51\ncolour = red\n"));
}

Test(rules, with_a_faulty_option_are_not_blamed_twice)
{
    assert_fault("[fruit:a]\nweight = 51\ncolour = 123456789012345678901\n",
                 "h.ini:3: [fruit:a] colour = 123456789012345678901: has 21 bytes; expected " SHORT_TEXT);
}

Test(rules, have_toggles_in_all_words_that_people_write)
{
    static const char *const on[] = {"on", "yes", "true", "1", "ON", "Yes", "TRUE"};
    static const char *const off[] = {"off", "no", "false", "0", "OFF", "No", "False"};

    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        char *text = conf_format("[fruit:a]\nripe = %s ; a comment\n[fruit:b]\nripe = %s\n", on[i], off[i]);
        struct conf *conf = load_sound(text);
        char *shown = print_conf(conf, true);
        cr_assert_eq(fruit_of(conf->rules)->ripe, 1, "%s", on[i]);
        cr_assert_eq(fruit_of(conf->rules->next)->ripe, 0, "%s", off[i]);
        cr_assert_not_null(strstr(shown, "ripe = on\n"));
        cr_assert_not_null(strstr(shown, "ripe = off\n"));
        free(shown);
        free(text);
        conf_free(conf);
    }
    assert_fault("[fruit:a]\nripe = enabled\n", "h.ini:2: [fruit:a] ripe = enabled: is neither on nor off; expected on "
                                                "or off (or yes, no, true, false, 1, 0)");
    assert_fault("[fruit:a]\nripe =\n",
                 "h.ini:2: [fruit:a] ripe =: is empty; expected on or off (or yes, no, true, false, 1, 0)");
}

Test(rules, need_a_name_that_can_be_told)
{
    static const char not_a_name[] = "not a name for a rule; expected 1 to 32 letters, digits, \"_\", \".\" or \"-\"";
    const char *const names[] = {"", "a b", "a:b", "a{b}", "\xc3\xa4", "123456789012345678901234567890123"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *text = conf_format("[fruit:%s]\n", names[i]);
        char *expected = conf_format("h.ini:1: [fruit:%s]: %s", names[i], not_a_name);
        assert_fault(text, expected);
        free(expected);
        free(text);
    }
    assert_fault("[fruit]\n", "h.ini:1: [fruit]: rule has no name; expected [fruit:NAME]");
    assert_fault("[basket:a]\n", "h.ini:1: [basket:a]: this section has no rules with names; expected [basket]");
}

Test(rules, of_sections_that_nobody_knows)
{
    assert_fault("[vegetable:a]\nweight = x\n",
                 "h.ini:1: [vegetable:a]: unknown section; expected [headgate], [fruit:NAME] or [basket]");
    assert_fault("[fruits:a]\n", "h.ini:1: [fruits:a]: unknown section; expected perhaps [fruit:NAME]");
}
