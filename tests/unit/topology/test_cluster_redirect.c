/* Redirects as nodes write them, and what only looks like one. */
#include "topology/cluster_redirect.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct cluster_redirect read(const char *line)
{
    struct cluster_redirect redirect;

    cr_assert(cluster_redirect_parse(slice_of(line), &redirect), "%s", line);
    return redirect;
}

static void expect(const char *line, bool ask, int slot, const char *host, int port)
{
    struct cluster_redirect redirect = read(line);

    cr_expect_eq(redirect.ask, ask, "%s", line);
    cr_expect_eq(redirect.slot, slot, "%s", line);
    cr_expect_str_eq(redirect.host, host, "%s", line);
    cr_expect_eq(redirect.port, port, "%s", line);
    cr_expect_not(redirect.is_unknown, "%s", line);
}

Test(cluster_redirect, moved_and_ask)
{
    expect("-MOVED 3999 127.0.0.1:6381\r\n", false, 3999, "127.0.0.1", 6381);
    expect("-ASK 0 127.0.0.1:1\r\n", true, 0, "127.0.0.1", 1);
    expect("MOVED 16383 redis-1.example.org:65535", false, 16383, "redis-1.example.org", 65535);
}

Test(cluster_redirect, hosts_of_every_kind)
{
    expect("-MOVED 1 ::1:7000\r\n", false, 1, "::1", 7000);
    expect("-MOVED 1 2001:db8::7:7000\r\n", false, 1, "2001:db8::7", 7000);
    expect("-MOVED 1 :7000\r\n", false, 1, "", 7000);
    struct cluster_redirect redirect = read("-MOVED 1 ?:7000\r\n");
    cr_assert(redirect.is_unknown);
    cr_assert_str_eq(redirect.host, "");
}

/* With bars between them. */
static const char no_redirects[] =
    "|-|-MOVED|-MOVED |-MOVED 1|-MOVED 1 |-MOVED 1 h|-MOVED 1 h:|-MOVED 1 h:0|-MOVED 1 h:65536|-MOVED 1 h:-1|-MOVED 1 "
    "h:+7|"
    "-MOVED 1 h:07|-MOVED 1 h:7 |-MOVED 1 h:7 x|-MOVED  1 h:7|-MOVED -1 h:7|-MOVED 16384 h:7|"
    "-MOVED 99999999999999999999 h:7|-MOVED x h:7|-MOVED 01 h:7|-moved 1 h:7|-MOVEDX 1 h:7|-ASKING 1 h:7|--MOVED 1 h:7|"
    "-MOVED 1 h\t:7|-MOVED 1 ../h:7|-MOVED 1 u@h:7|-MOVED 1 h\r\n:7|-MOVED 1 h:7\n|-ERR MOVED 1 h:7|"
    "-MOVED 1 h\xc3\xa4:7|:1\r\n|+MOVED 1 h:7";

Test(cluster_redirect, what_is_none)
{
    char copy[sizeof no_redirects], *rest = memcpy(copy, no_redirects, sizeof no_redirects);

    for (char *line = strsep(&rest, "|"); line != NULL; line = strsep(&rest, "|")) {
        struct cluster_redirect redirect = {.slot = 4711};
        cr_expect_not(cluster_redirect_parse(slice_of(line), &redirect), "%s", line);
        cr_expect_eq(redirect.slot, 4711);
    }
}

Test(cluster_redirect, a_host_has_an_end)
{
    struct cluster_redirect redirect;
    char line[600];

    snprintf(line, sizeof(line), "-MOVED 1 %0*d:7", CLUSTER_HOST_MAX - 1, 1);
    cr_assert(cluster_redirect_parse(slice_of(line), &redirect));
    cr_assert_eq(strlen(redirect.host), CLUSTER_HOST_MAX - 1);
    snprintf(line, sizeof(line), "-MOVED 1 %0*d:7", CLUSTER_HOST_MAX, 1);
    cr_assert_not(cluster_redirect_parse(slice_of(line), &redirect));
}
