/* Addresses that name sentinels or the nodes of a cluster. */
#include "conf_file.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct conf_option option = {.name = "upstream", .type = CONF_ADDRESS, .takes_topology = true};
static const struct conf_option elsewhere = {.name = "upstream", .type = CONF_ADDRESS};

static void assert_seed(const struct conf_address *address, size_t index, const char *host, uint16_t port,
                        const char *text)
{
    cr_assert_lt(index, address->seed_count);
    cr_assert_str_eq(address->seeds[index].host, host);
    cr_assert_eq(address->seeds[index].port, port);
    cr_assert_str_eq(address->seeds[index].text, text);
}

static struct conf_address parsed(const char *text)
{
    struct conf_address address = {.database = -1};
    char problem[CONF_PROBLEM_MAX] = "";

    cr_assert(conf_value_set(&option, &address, text, problem), "%s: %s", text, problem);
    return address;
}

Test(conf_topology, sentinels)
{
    struct conf_address address = parsed("sentinel://a,b.example:7,10.0.0.1:26380,[0::1],[::2]:9/my.Master-1_x");

    cr_assert_eq(address.topology, CONF_TOPOLOGY_SENTINEL);
    cr_assert_not(address.tls);
    cr_assert_null(address.host);
    cr_assert_null(address.path);
    cr_assert_str_eq(address.master, "my.Master-1_x");
    cr_assert_eq(address.seed_count, 5);
    assert_seed(&address, 0, "a", 26379, "a:26379");
    assert_seed(&address, 1, "b.example", 7, "b.example:7");
    assert_seed(&address, 2, "10.0.0.1", 26380, "10.0.0.1:26380");
    assert_seed(&address, 3, "::1", 26379, "[::1]:26379");
    assert_seed(&address, 4, "::2", 9, "[::2]:9");
    cr_assert_str_eq(address.text, "sentinel://a,b.example:7,10.0.0.1:26380,[0::1],[::2]:9/my.Master-1_x");
    conf_value_free(&option, &address);
}

Test(conf_topology, credentials_and_tls)
{
    struct conf_address address = parsed("SENTINELS://app:p%40%2F@a,b:7/m%20x");

    cr_assert_eq(address.topology, CONF_TOPOLOGY_SENTINEL);
    cr_assert(address.tls);
    cr_assert_str_eq(address.user, "app");
    cr_assert_str_eq(address.password, "p@/");
    cr_assert_str_eq(address.master, "m x");
    cr_assert_str_eq(address.text, "SENTINELS://a,b:7/m%20x", "without what is secret");
    conf_value_free(&option, &address);
}

Test(conf_topology, clusters)
{
    struct conf_address address = parsed("cluster://a:7000,b/");

    cr_assert_eq(address.topology, CONF_TOPOLOGY_CLUSTER);
    cr_assert_not(address.tls);
    cr_assert_null(address.master);
    cr_assert_eq(address.seed_count, 2);
    assert_seed(&address, 0, "a", 7000, "a:7000");
    assert_seed(&address, 1, "b", 6379, "b:6379");
    conf_value_free(&option, &address);
    address = parsed("clusters://:pw@[::1]:7000/0");
    cr_assert_eq(address.topology, CONF_TOPOLOGY_CLUSTER);
    cr_assert(address.tls);
    cr_assert_str_eq(address.password, "pw");
    conf_value_free(&option, &address);
}

Test(conf_topology, text_makes_it_again)
{
    const char *const texts[] = {
        "sentinel://a,b:7/m",
        "sentinels://app:p%40@a,b:7/m",
        "clusters://:pw@[::1]:7000,b:1",
    };

    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct conf_address address = parsed(texts[i]), copy = {.database = -1};
        char *text = conf_value_text(&option, &address);
        cr_assert_str_eq(text, texts[i]);
        conf_value_copy(&option, &copy, &address);
        cr_assert(conf_address_equal(&address, &copy));
        cr_assert_eq(copy.seed_count, address.seed_count);
        free(text);
        conf_value_free(&option, &address);
        conf_value_free(&option, &copy);
    }
}

static void assert_same(const char *a, const char *b, bool same)
{
    struct conf_address one = parsed(a), other = parsed(b);

    cr_assert_eq(conf_address_equal(&one, &other), same, "%s %s", a, b);
    conf_value_free(&option, &one);
    conf_value_free(&option, &other);
}

Test(conf_topology, equality)
{
    assert_same("sentinel://a,b/m", "sentinel://b:26379,a/m", true);
    assert_same("sentinel://a,b/m", "sentinel://a,b/n", false);
    assert_same("sentinel://a,b/m", "sentinel://a/m", false);
    assert_same("sentinel://a/m", "cluster://a:26379", false);
    assert_same("cluster://a", "cluster://A", true);
    assert_same("cluster://a", "redis://a", false);
}

static void assert_wrong(const struct conf_option *of, const char *text, const char *what)
{
    struct conf_address address = {.database = -1};
    char problem[CONF_PROBLEM_MAX] = "";

    cr_assert_not(conf_value_set(of, &address, text, problem), "%s", text);
    cr_assert_not_null(strstr(problem, what), "%s: %s", text, problem);
    cr_assert_null(address.seeds);
}

Test(conf_topology, what_is_refused)
{
    const char *const pairs[][2] = {
        {"sentinel://", "has no host between its commas"},
        {"sentinel:///m", "has no host between its commas"},
        {"sentinel://a,/m", "has no host between its commas"},
        {"sentinel://,a/m", "has no host between its commas"},
        {"sentinel://a,:7/m", "has no host between its commas"},
        {"sentinel://a, b/m", "holds a blank"},
        {"sentinel://a,b", "has no name of a master"},
        {"sentinel://a,b/", "has no name of a master"},
        {"sentinel://a,b/m/0", "has more behind the master's name"},
        {"sentinel://a,b/m?x=1", "has more behind the master's name"},
        {"sentinel://a?x/m", "has no name of a master"},
        {"sentinel://a/%zz", "has a % in the master's name"},
        {"sentinel://a:0/m", "port 0 is not from 1 to 65535"},
        {"sentinel://a:x/m", "is not a number"},
        {"sentinel://a,A:26379/m", "names A:26379 twice"},
        {"sentinel://fe80::1/m", "holds an IPv6 address without brackets"},
        {"sentinel://@a/m", "has neither user nor password before its @"},
        {"sentinel://u:p@a@b/m", "has more than one @"},
        {"sentinel://u:p/w@a/m", "has a path before its @"},
        {"sentinel://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q/m", "names more than 16 hosts"},
        {"cluster://a/1", "has something behind its hosts"},
        {"cluster://a/x", "has something behind its hosts"},
        {"cluster://a?x", "has something behind its hosts"},
        {"clusters://", "has no host between its commas"},
    };

    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        assert_wrong(&option, pairs[i][0], pairs[i][1]);
    }
    assert_wrong(&elsewhere, "sentinel://a,b/m", "names sentinels or a cluster, as only upstream of [headgate] may");
    assert_wrong(&elsewhere, "clusters://a", "names sentinels or a cluster, as only upstream of [headgate] may");
}

Test(conf_topology, not_to_listen_on)
{
    assert_refused("listen", "cluster://a:7000", "names sentinels or a cluster, as only upstream of [headgate] may");
    assert_refused("admin", "sentinel://a/m", "names sentinels or a cluster, as only upstream of [headgate] may");
}

Test(conf_topology, own_addresses)
{
    struct conf_file file;

    load_file(&file, "[headgate]\nlisten = 127.0.0.1:7001\nadmin =\nupstream = sentinel://a,localhost:7001/m\n");
    cr_assert_gt(file.faults.count, 0);
    cr_assert_not_null(strstr(file.faults.lines[0], "are the same address"), "%s", file.faults.lines[0]);
    drop_file(&file);
}

Test(conf_topology, hides_secrets_in_faults)
{
    const char *const values[] = {
        "sentinel://app:SECRET@a,b",
        "sentinel://app:SECRET@a,,b/m",
        "sentinel://app:SECRET,x@a,b/m/n",
        "cluster://app:SECRET@a/1",
    };

    for (size_t i = 0; i < COUNT_OF(values); i++) {
        struct conf_file file;
        char *text = conf_format("[headgate]\nupstream = %s\n", values[i]);
        load_file(&file, text);
        cr_assert_gt(file.faults.count, 0, "%s", values[i]);
        for (size_t j = 0; j < file.faults.count; j++) {
            cr_assert_null(strstr(file.faults.lines[j], "SECRET"), "%s", file.faults.lines[j]);
        }
        drop_file(&file);
        free(text);
    }
}
