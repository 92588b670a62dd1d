/* [route:NAME]: of which requests a rule says who answers them, and who. */
#include "../../support/fake_host.h"

#include <criterion/criterion.h>

extern const struct policy route_policy;

/* A request, and who is to answer it. */
struct routed {
    const char *request;
    const char *reads;
};

struct table {
    const char *rules;
    struct routed rows[10];
};

static const struct table tables[] = {
    {"", {{"GET a", "unsaid"}}},
    {"[route:all]\nreads = replica\n", {{"GET a", "replica"}, {"DBSIZE", "replica"}, {"JSON.GET a", "unsaid"}}},
    {"[route:c]\nkeys = c:*\nreads = prefer-replica\n",
     {{"GET c:1", "prefer-replica"},
      {"GET d:1", "unsaid"},
      {"MGET c:1 c:2", "prefer-replica"},
      {"MGET c:1 d:1", "unsaid"},
      {"MGET d:1 c:1", "unsaid"},
      {"DBSIZE", "unsaid"},
      {"SORT_RO c:1", "prefer-replica"},
      {"SORT_RO c:1 BY c:w:*", "unsaid"},
      {"SORT_RO c:1 BY nosort GET #", "prefer-replica"}}},
    {"[route:m]\nkeys = m:*\nreads = master\n",
     {{"GET m:1", "master"},
      {"MGET a m:1", "master"},
      {"MGET a b", "unsaid"},
      {"SORT_RO a BY m:*", "master"},
      {"DBSIZE", "unsaid"}}},
    {"[route:hot]\nkeys = c:hot:*\nreads = master\n[route:c]\nkeys = c:*\nreads = replica\n",
     {{"GET c:hot:1", "master"}, {"GET c:1", "replica"}, {"MGET c:1 c:hot:1", "master"}, {"MGET c:1 c:2", "replica"}}},
    {"[route:s]\ncommands = @set !scard object|encoding\nreads = replica\n",
     {{"SMEMBERS s", "replica"},
      {"SCARD s", "unsaid"},
      {"OBJECT ENCODING s", "replica"},
      {"OBJECT FREQ s", "unsaid"},
      {"GET s", "unsaid"}}},
    {"[route:far]\nclients = ip:10.0.0.0/8 name:report-*\nreads = replica\n", {{"GET a", "replica"}}},
    {"[route:far]\nclients = ip:10.1.0.0/16 name:report-*\nreads = replica\n", {{"GET a", "unsaid"}}},
};

Test(route, who_answers)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct fake_host *host = fake_host_new(&route_policy, tables[i].rules, 1);
        struct fake_client *client = fake_join(host, 0, "10.0.0.1", "");
        for (const struct routed *row = tables[i].rows; row->request != NULL; row++) {
            cr_expect_str_eq(fake_reads(client, row->request), row->reads, "%s%s: %s", tables[i].rules, row->request,
                             fake_reads(client, row->request));
        }
        fake_host_free(host);
    }
}

Test(route, a_client_that_takes_a_name_and_a_reload)
{
    struct fake_host *host = fake_host_new(&route_policy, "[route:r]\nclients = name:report-*\nreads = replica\n", 1);
    struct fake_client *client = fake_join(host, 0, "10.0.0.1", "");

    cr_expect_str_eq(fake_reads(client, "GET a"), "unsaid");
    fake_rename(client, "report-1");
    cr_expect_str_eq(fake_reads(client, "GET a"), "replica");
    fake_reload(host, "[route:r]\nreads = master\n");
    cr_expect_str_eq(fake_reads(client, "GET a"), "master");
    fake_reload(host, "");
    cr_expect_str_eq(fake_reads(client, "GET a"), "unsaid");
    fake_host_free(host);
}
