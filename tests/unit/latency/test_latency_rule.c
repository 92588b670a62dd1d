#include "../conf/conf_fixture.h"
#include "latency/latency_rule.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct conf_section *const sections[] = {&latency_section, &latency_rule_section,
                                                      &latency_counters_section, &latency_events_section, NULL};

static struct latency_settings settings_at(const char *text, const struct latency_place *place)
{
    struct latency_settings settings;
    struct conf *conf = load_conf(text, sections);

    latency_settings_make(&settings, conf->rules, place);
    conf_free(conf);
    return settings;
}

#define assert_fault(text, expected) assert_conf_fault(text, sections, expected)

Test(latency_rule, faults)
{
    assert_fault("[latency]\nprefix = a b\n", "prefix = a b: has a blank");
    assert_fault("[latency]\nprefix =\n", "prefix");
    assert_fault("[latency]\nenabled = maybe\n", "expected");
    assert_fault("[counters]\nprefix = a b\n", "prefix = a b: has a blank");
    assert_fault("[latency]\nflush = 1ms\n", "flush");
    assert_fault("[latency]\nmax_interfaces = 65537\n", "max_interfaces");
    assert_fault("[latency:a]\ncommands = nonsense-command\n", "commands");
    assert_fault("[latency:a]\nkeys = [a\n", "keys");
    assert_fault("[latency:a]\ncommands = ping\nkeys = a*\n", "can never match");
    assert_fault("[latency:a]\nprefix = b\n", "unknown option");
    assert_fault("[latency]\nupstream = redis\n", "upstream = redis: \"redis\" has no port");
    assert_fault("[latency]\nupstream = a:1\nupstream_user = u\n", "upstream_user = u: has no password");
    assert_fault("[latency]\nupstream_password = p\n", "upstream_password = ********: has no server");
    assert_fault("[headgate]\nlisten = 127.0.0.1:7000\n[latency]\nupstream = 127.0.0.1:7000\n",
                 "upstream = 127.0.0.1:7000: is an address of Headgate itself");
    assert_fault("[headgate]\nadmin = unix:/run/a\n[latency]\nupstream = unix:/run/a\n", "Headgate itself");
}

Test(latency_rule, puts_names_into_slots_before_a_cluster)
{
    static const struct {
        const char *text;
        bool is_cluster;
        bool braces;
        const char *counters;
        const char *events;
    } cases[] = {
        {"[latency]\n[counters]\n[events]\n", false, false, "headgate:", "headgate:"},
        {"[latency]\n[counters]\n[events]\n", true, true, "{headgate}:", "{headgate}:"},
        {"[latency]\nbraces = on\n[counters]\n[events]\n", false, true, "{headgate}:", "{headgate}:"},
        {"[latency]\nbraces = off\n[counters]\n[events]\n", true, false, "headgate:", "headgate:"},
        {"[counters]\n[latency]\n[events]\n", true, true, "{headgate}:", "{headgate}:"},
        {"[latency]\nprefix = {a}b\n[counters]\nprefix = x{a}:\n[events]\nprefix = own\n", true, false,
         "x{a}:", "{own}"},
        {"[latency]\nprefix = a{}\n[counters]\nprefix =\n[events]\nprefix = a{}:\n", true, true, "", "{a{}}:"},
        {"[latency]\nupstream = 127.0.0.1:1\n[counters]\n[events]\n", true, false, "headgate:", "headgate:"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct latency_place place = {.server = "", .is_cluster = cases[i].is_cluster};
        struct latency_settings settings = settings_at(cases[i].text, &place);
        cr_assert_eq(settings.braces, cases[i].braces, "%s", cases[i].text);
        cr_assert_str_eq(settings.counters_prefix, cases[i].counters, "%s", cases[i].text);
        cr_assert_str_eq(settings.events_prefix, cases[i].events, "%s", cases[i].text);
        latency_settings_clear(&settings);
    }
}

Test(latency_rule, has_the_longest_prefix_with_a_server_in_braces)
{
    char given[LATENCY_PREFIX_GIVEN_MAX + 1] = {0}, server[CONF_RULE_NAME_MAX + 1] = {0}, text[256];
    memset(given, 'p', sizeof given - 1);
    given[sizeof given - 2] = ':';
    memset(server, 's', sizeof server - 1);
    snprintf(text, sizeof text, "[latency]\n[counters]\nprefix = %s\n", given);
    const struct latency_place place = {.server = server, .is_cluster = true};
    struct latency_settings settings = settings_at(text, &place);

    cr_assert_eq(strlen(settings.counters_prefix), sizeof given - 1 + 1 + sizeof server - 1 + 2);
    cr_assert_eq(settings.counters_prefix[0], '{');
    cr_assert_eq(settings.counters_prefix[strlen(settings.counters_prefix) - 2], '}');
    latency_settings_clear(&settings);
}
