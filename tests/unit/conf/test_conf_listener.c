/* [listener:NAME], the same options in [headgate], and lists of networks. */
#include "conf/conf_listener.h"

#include "conf_fixture.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "conf/networks.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct conf_section *const sections[] = {&conf_section_listener, NULL};

static struct conf *loaded(const char *text)
{
    struct conf_faults faults;
    struct conf *conf = load_conf(text, sections, &faults);

    cr_assert_not_null(conf, "%s: %s", text, faults.count > 0 ? faults.lines[0] : "");
    conf_faults_free(&faults);
    return conf;
}

/* The first fault holds what. */
static void assert_faulty(const char *text, const char *what)
{
    struct conf_faults faults;
    struct conf *conf = load_conf(text, sections, &faults);

    cr_assert_null(conf, "%s", text);
    cr_assert_eq(faults.count, 1, "%s: %s", text, faults.lines[1]);
    cr_assert_not_null(strstr(faults.lines[0], what), "%s", faults.lines[0]);
    conf_faults_free(&faults);
}

Test(conf_listener, faults)
{
    static const char *const names[] = {"", "a b", "a:b", "a{b}", "\xc3\xa4", "123456789012345678901234567890123"};

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char *text = conf_format("[listener:%s]\nlisten = h:1\n", names[i]);
        assert_faulty(text, "not a name for a rule; expected 1 to 32 letters, digits, \"_\", \".\" or \"-\"");
        free(text);
    }
    assert_faulty("[listener]\n", "[listener]: rule has no name; expected [listener:NAME]");
    assert_faulty("[listeners:a]\n", "[listeners:a]: unknown section; expected perhaps [listener:NAME]");
    assert_faulty("[listener:a]\nlisten = h:1\nlisten = h:2\n",
                  "listen = h:2: given on line 2 already; expected it once");
    assert_faulty("[listener:a]\n", "[listener:a] listen =: is missing");
    assert_faulty("[listener:a]\nlisten = 127.0.0.1:6380\n",
                  "127.0.0.1:6380 and 127.0.0.1:6380 of listen in [headgate] are the same address");
    assert_faulty("[listener:a]\nlisten = 0.0.0.0:6380\n", "are the same address");
    assert_faulty("[listener:a]\nlisten = localhost:6390\n",
                  "localhost:6390 and 127.0.0.1:6390 of admin are the same address");
    assert_faulty("[listener:a]\nlisten = 127.0.0.1:6379\n", "of upstream are the same address");
    assert_faulty("[listener:a]\nlisten = h:1\n[listener:b]\nlisten = rediss://H:1\n",
                  "[listener:b] listen = rediss://H:1: rediss://H:1 and h:1 of listener:a are the same address");
    assert_faulty("[listener:a]\nlisten = h:1/2\n", "is not a number");
    assert_faulty("[listener:a]\nlisten = redis://h:1/2\n", "names a database");
}

Test(conf_listener, faults_of_the_proxy_protocol)
{
    static const char *const heads[] = {"[headgate]\nlisten = h:1\n", "[listener:a]\nlisten = h:1\n"};

    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        const char *const pairs[][2] = {
            {"proxy_protocol = required\n", "proxy_protocol = required: has nobody who is believed"},
            {"proxy_from = 10.0.0.0/8\n", "means nothing while no proxy protocol is spoken"},
            {"proxy_protocol = required\nproxy_from = 10.0.0.0/8 h\n", "\"h\" is no address or network"},
            {"proxy_protocol = required\nproxy_from = 10.0.0.0/33\n", "\"10.0.0.0/33\" is no address or network"},
            {"proxy_protocol = optional\n", "is not one of the known words"},
        };
        for (size_t j = 0; j < COUNT_OF(pairs); j++) {
            char *text = conf_format("%s%s", heads[i], pairs[j][0]);
            assert_faulty(text, pairs[j][1]);
            free(text);
        }
    }
}

static void collect(void *context, const char *option)
{
    char **text = context;
    char *longer = conf_format("%s%s;", *text, option);

    free(*text);
    *text = longer;
}

/* Whom to believe changes, but where the address does; addresses, and which listeners there are, take a restart. */
Test(conf_listener, reload)
{
    struct conf *old = loaded("[listener:a]\nlisten = h:1\nproxy_protocol = required\nproxy_from = ::1\n"
                              "[listener:b]\nlisten = h:2\n[listener:d]\nlisten = h:4\n");
    struct conf *fresh = loaded("[listener:c]\nlisten = h:3\n[listener:d]\nlisten = h:4\nrefuse = ip:::1\n"
                                "[listener:a]\nlisten = h:9\nproxy_protocol = required\nproxy_from = 10.0.0.1\n");
    struct conf *merged = merge_conf(old, fresh, sections);
    char *changes = conf_format("%s", "");

    conf_restart_only_changes(merged, fresh, collect, &changes);
    cr_assert_str_eq(changes, "[listener:a] listen;[listener:a] proxy_from (with listen);[listener:b];[listener:c];",
                     "%s", changes);
    cr_assert_eq(conf_listener_count(merged), 4);
    struct conf_listener a = conf_listener_at(merged, 1), b = conf_listener_at(merged, 2);
    cr_assert_str_eq(conf_listener_at(merged, 3).terms->refuse, "ip:::1");
    cr_assert_str_eq(a.name, "a");
    cr_assert_str_eq(a.listen->items[0].text, "h:1");
    cr_assert_str_eq(a.terms->proxy_from, "::1");
    cr_assert_str_eq(b.name, "b");
    free(changes);
    conf_free(merged);
    conf_free(fresh);
    conf_free(old);
}
