/* [server:NAME] and [listener:NAME]: what each goes by, what is wrong with one, and what a reload makes of several. */
#include "conf/conf_listener.h"

#include "conf_fixture.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

struct rule_options {
    char *servers;
};

static const struct conf_option rule_option_table[] = {
    CONF_SERVERS_OPTION(struct rule_options, servers),
};

static const struct conf_section rule_section = {
    .name = "rule",
    .has_rules = true,
    .options = rule_option_table,
    .option_count = 1,
    .values_size = sizeof(struct rule_options),
};

static const struct conf_section *const sections[] = {&conf_section_server, &conf_section_listener, &rule_section,
                                                      NULL};

/* The names of the rules that a server has, with blanks behind them. The caller frees it. */
static char *rules_of(const struct conf *server)
{
    char *text = conf_format("%s", "");

    for (const struct conf_rule *rule = server->rules; rule != NULL; rule = rule->next) {
        char *longer = conf_format("%s%s ", text, rule->name);
        free(text);
        text = longer;
    }
    return text;
}

static void assert_rules(const struct conf *server, const char *expected)
{
    char *text = rules_of(server);

    cr_assert_str_eq(text, expected, "%s: %s", conf_server_name(server), text);
    free(text);
}

static const char several[] = "[headgate]\nlisten = h:1\nupstream = h:2\nupstream_password = s3cret\nlanes = 3\n"
                              "allow = ip:10.0.0.0/8\n"
                              "[server:b]\nlisten = h:3\nupstream = redis://u:p@h:4\nlanes = 5\n"
                              "[rule:all]\n"
                              "[server:a]\nlisten = h:5\nupstream = h:6\nthreads = 2\n"
                              "[listener:l]\nlisten = h:7\nserver = a\n"
                              "[rule:some]\nservers = a, default\n"
                              "[rule:one]\nservers = b\n";

/* What is said where counts; what belongs to an address is nobody else's, and what keeps others out is everybody's. */
Test(conf_server, each_by_itself)
{
    struct conf *conf = load_conf(several, sections);
    const struct conf *first = conf_server_at(conf, 0), *b = conf_server_at(conf, 1), *a = conf_server_at(conf, 2);

    cr_assert_eq(conf_server_count(conf), 3);
    cr_assert_str_eq(conf_server_name(first), "default");
    cr_assert_str_eq(conf_server_name(b), "b");
    cr_assert_str_eq(conf_server_name(a), "a");
    cr_assert_eq(first->lanes, 3);
    cr_assert_eq(b->lanes, 5);
    cr_assert_eq(a->lanes, 3);
    cr_assert_eq(a->threads, 2);
    cr_assert_str_eq(a->upstream.text, "h:6");
    cr_assert_str_eq(first->upstream_password, "s3cret");
    cr_assert_str_eq(b->upstream_user, "u");
    cr_assert_str_eq(b->upstream_password, "p");
    cr_assert_str_eq(a->upstream_password, "");
    cr_assert_str_eq(a->listener_terms.allow, "ip:10.0.0.0/8");
    assert_rules(first, "all some ");
    assert_rules(b, "all one ");
    assert_rules(a, "all l some ");
    cr_assert_eq(conf_listener_count(b), 1);
    cr_assert_eq(conf_listener_count(a), 2);
    conf_free(conf);
}

/* Also where another one of the process listens. */
Test(conf_server, no_address_of_the_process_is_that_of_a_redis)
{
    struct conf *conf = load_conf("[server:a]\nlisten = 127.0.0.1:3\nupstream = h:1\n"
                                  "[server:b]\nlisten = 127.0.0.1:4\nupstream = h:2\n",
                                  sections);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(4), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    cr_assert_eq(conf_server_count(conf), 2);
    cr_assert_str_eq(conf_own_address(conf_server_at(conf, 0), (const struct sockaddr *)&to), "127.0.0.1:4");
    to.sin_port = htons(6380);
    cr_assert_null(conf_own_address(conf_server_at(conf, 0), (const struct sockaddr *)&to),
                   "[headgate] is no server: nobody listens where it would");
    conf_free(conf);
}

/* Servers stay as they were opened, in their order; options and rules are those of the new file. */
Test(conf_server, reload)
{
    struct conf *old = load_conf(several, sections);
    struct conf *fresh = load_conf("[headgate]\nlisten = h:1\nupstream = h:2\nlanes = 3\nupstream_wait = 7s\n"
                                   "[server:c]\nlisten = h:8\nupstream = h:9\n"
                                   "[server:a]\nlisten = h:5\nupstream = h:10\nthreads = 2\nmax_clients = 9\n"
                                   "[listener:l]\nlisten = h:7\nserver = c\n"
                                   "[rule:new]\nservers = c a\n[rule:all]\n",
                                   sections);
    struct conf *merged = merge_conf(old, fresh, sections);
    char *changes = conf_format("%s", "");

    conf_restart_only_changes(merged, fresh, note_option, &changes);
    cr_assert_str_eq(changes,
                     "upstream_password (with listen);[server:b];[server:a] upstream;[listener:l] server;[server:c];",
                     "%s", changes);
    cr_assert_eq(conf_server_count(merged), 3);
    const struct conf *first = conf_server_at(merged, 0), *b = conf_server_at(merged, 1),
                      *a = conf_server_at(merged, 2);
    cr_assert_str_eq(conf_server_name(b), "b");
    cr_assert_str_eq(conf_server_name(a), "a");
    cr_assert_eq(first->upstream_wait, 7000);
    cr_assert_str_eq(first->upstream_password, "s3cret", "who comes is who he was, as long as all listen");
    cr_assert_eq(a->upstream_wait, 7000);
    cr_assert_eq(a->max_clients, 9);
    cr_assert_str_eq(a->upstream.text, "h:6");
    cr_assert_eq(b->upstream_wait, 3000, "it is gone from the file: it is as it was");
    cr_assert_str_eq(b->upstream_password, "p");
    assert_rules(b, "all ");
    assert_rules(a, "new all l ");
    free(changes);
    conf_free(merged);
    conf_free(fresh);
    conf_free(old);
}

/* Whom to believe changes, but where the address does; addresses, and which listeners there are, take a restart. */
Test(conf_listener, reload)
{
    struct conf *old = load_conf("[listener:a]\nlisten = h:1\nproxy_protocol = required\nproxy_from = ::1\n"
                                 "[listener:b]\nlisten = h:2\n[listener:d]\nlisten = h:4\n",
                                 sections);
    struct conf *fresh = load_conf("[listener:c]\nlisten = h:3\n[listener:d]\nlisten = h:4\nrefuse = ip:::1\n"
                                   "[listener:a]\nlisten = h:9\nproxy_protocol = required\nproxy_from = 10.0.0.1\n",
                                   sections);
    struct conf *merged = merge_conf(old, fresh, sections);
    char *changes = conf_format("%s", "");

    conf_restart_only_changes(merged, fresh, note_option, &changes);
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

/* A secret of [headgate] is that of its own address, or of the process: none goes to another server. The files of
 * private keys are read here and shown to nobody. */
Test(conf_server, no_secret_is_handed_down)
{
    for (size_t i = 0; i < conf_option_count; i++) {
        const struct conf_option *option = &conf_options[i];
        bool is_key = option->type == CONF_FILE && option->fills == NULL;
        cr_assert(!option->secret || is_key || option->reach != CONF_REACH_SERVER, "%s", option->name);
    }
}
