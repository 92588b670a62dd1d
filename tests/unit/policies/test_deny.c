/* [deny:NAME]: which requests of which clients are refused, with which words. tests/e2e/test_together.py has what is
 * counted. */
#include "../../support/fake_host.h"

#include <criterion/criterion.h>
#include <stdlib.h>

extern const struct policy deny_policy;

#define NAMED "is not allowed"
#define ON_A_KEY "is not allowed on such a key"
#define AT_THIS_SIZE "is not allowed at this size"

/* A request, and what is said of it. */
struct judged {
    const char *request;
    const char *said;
};

struct table {
    const char *rules;
    struct judged rows[12];
};

static const struct table tables[] = {
    {"[deny:danger]\ncommands = @dangerous !info config|set\n",
     {{"FLUSHALL", "-DENIED danger: flushall " NAMED},
      {"keys *", "-DENIED danger: keys " NAMED},
      {"INFO server", "pass"},
      {"SET k v", "pass"},
      {"PING", "pass"}}},
    {"[deny:conf]\ncommands = config|set\n",
     {{"CONFIG Set maxmemory 0", "-DENIED conf: config " NAMED}, {"CONFIG GET maxmemory", "pass"}}},
    {"[deny:secret]\nkeys = secret:* *:pin\n",
     {{"GET secret:a", "-DENIED secret: get " ON_A_KEY},
      {"MGET a b:pin", "-DENIED secret: mget " ON_A_KEY},
      {"EVAL return_1 1 secret:x", "-DENIED secret: eval " ON_A_KEY},
      {"SET a secret:a", "pass"},
      {"PING", "pass"}}},
    {"[deny:big]\ncommands = @write\nmax_bytes = 40\n",
     {{"SET a 12345678", "pass"},
      {"SET a 12345678901234567890", "-DENIED big: set " AT_THIS_SIZE},
      {"ECHO 12345678901234567890123456789012345678901234567890", "pass"}}},
    {"[deny:first]\ncommands = get\n[deny:second]\ncommands = get set\n",
     {{"GET a", "-DENIED first: get " NAMED}, {"SET a 1", "-DENIED second: set " NAMED}, {"DEL a", "pass"}}},
    {"[deny:watch]\ncommands = set\naction = observe\n[deny:del]\ncommands = del\n",
     {{"SET a 1", "pass"}, {"DEL a", "-DENIED del: del " NAMED}}},
    {"[deny:e]\ncommands = * !get !ping !client\n",
     {{"JSON.SET a $ 1", "-DENIED e: this command " NAMED}, {"GET a", "pass"}, {"CLIENT ID", "pass"}}},
};

Test(deny, what_is_refused)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct fake_host *host = fake_host_new(&deny_policy, tables[i].rules, 1);
        struct fake_client *client = fake_join(host, 0, "10.0.0.1", "");
        for (const struct judged *row = tables[i].rows; row->request != NULL; row++) {
            cr_expect_str_eq(fake_verdict(client, row->request), row->said, "%s%s: %s", tables[i].rules, row->request,
                             fake_verdict(client, row->request));
        }
        fake_host_free(host);
    }
}

Test(deny, who_is_excepted)
{
    static const struct {
        const char *except, *address, *name;
        bool may;
    } rows[] = {
        {"name:operator", "10.0.0.1", "operator", true}, {"name:operator", "10.0.0.1", "", false},
        {"name:op*", "10.0.0.1", "operator", true},      {"ip:10.1.0.0/16", "10.1.2.3", "", true},
        {"ip:10.1.0.0/16", "10.2.0.1", "", false},       {"user:default", "10.0.0.1", "", true},
        {"user:other", "10.0.0.1", "", false},           {"ip:10.9.9.9 name:x", "10.0.0.1", "x", true},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *rules = conf_format("[deny:a]\ncommands = keys\nexcept = %s\n", rows[i].except);
        struct fake_host *host = fake_host_new(&deny_policy, rules, 1);
        struct fake_client *client = fake_join(host, 0, rows[i].address, rows[i].name);
        cr_expect_str_eq(fake_verdict(client, "KEYS *"), rows[i].may ? "pass" : "-DENIED a: keys " NAMED, "%s", rules);
        fake_host_free(host);
        free(rules);
    }
}

/* A name that is taken counts from then on. */
Test(deny, a_client_that_takes_a_name)
{
    struct fake_host *host = fake_host_new(&deny_policy, "[deny:a]\ncommands = keys\nexcept = name:operator\n", 1);
    struct fake_client *client = fake_join(host, 0, "10.0.0.1", "");

    cr_assert_str_eq(fake_verdict(client, "KEYS *"), "-DENIED a: keys " NAMED);
    fake_rename(client, "operator");
    cr_assert_str_eq(fake_verdict(client, "KEYS *"), "pass");
    fake_host_free(host);
}

/* As soon as it is known, and not before; it is counted once. */
Test(deny, requests_of_which_a_part_has_come)
{
    static const char request[] = "SET k 1234567890123456789012345678901234567890";
    /* It has 66 bytes, as can be told from the first 27. */
    struct fake_host *host =
        fake_host_new(&deny_policy, "[deny:watch]\ncommands = set\naction = observe\n[deny:big]\nmax_bytes = 60\n", 1);
    struct fake_client *client = fake_join(host, 0, "10.0.0.1", "");

    cr_assert_str_eq(fake_verdict_of_part(client, request, 18), "whole");
    fake_assert_counter(host, "deny_observed_total", 0);
    cr_assert_str_eq(fake_verdict_of_part(client, request, 30), "-DENIED big: set " AT_THIS_SIZE);
    fake_assert_counter(host, "deny_observed_total", 1);
    fake_assert_counter(host, "deny_rejected_total", 1);
    fake_reload(host, "[deny:bigger]\nmax_bytes = 1kb\n");
    cr_assert_str_eq(fake_verdict_of_part(client, request, 18), "whole");
    cr_assert_str_eq(fake_verdict_of_part(client, request, 30), "pass");
    cr_assert_str_eq(fake_verdict(client, request), "pass");
    fake_host_free(host);
}
