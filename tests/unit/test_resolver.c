/* Names that are looked up on a thread of their own. */
#include "resolver.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

static struct stats stats;
static struct reactor reactor;

static void open_reactor(void)
{
    cr_assert(reactor_init(&reactor, &stats));
}

static void close_reactor(void)
{
    reactor_free(&reactor);
}

TestSuite(resolver, .init = open_reactor, .fini = close_reactor, .timeout = 60);

struct finding {
    size_t calls;
    bool is_found;
    struct connection_target target;
    const char *why;
};

static void note(void *context, const struct connection_target *target, const char *why)
{
    struct finding *finding = context;

    finding->calls++;
    finding->is_found = target != NULL;
    finding->why = why;
    if (target != NULL) {
        finding->target = *target;
    }
}

/* The address is gone before the name is looked up. */
static struct resolver *start(const char *host, struct finding *finding)
{
    char text[64];
    const struct conf_address address = {.host = text, .port = 7000};

    snprintf(text, sizeof text, "%s", host);
    struct resolver *resolver = resolver_start(&reactor, &address, note, finding);
    cr_assert_not_null(resolver);
    memset(text, 'x', sizeof text - 1);
    return resolver;
}

static struct finding find(const char *host)
{
    struct finding finding = {0};

    (void)start(host, &finding);
    while (finding.calls == 0) {
        cr_assert(reactor_turn(&reactor));
    }
    return finding;
}

Test(resolver, finds_an_address)
{
    struct finding finding = find("127.0.0.1");
    const struct sockaddr_in *address = (const struct sockaddr_in *)(const void *)&finding.target.address;

    cr_assert(finding.is_found, "%s", finding.why);
    cr_assert_eq(address->sin_family, AF_INET);
    cr_assert_eq(address->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    cr_assert_eq(address->sin_port, htons(7000));
}

Test(resolver, says_why_there_is_none)
{
    /* An empty label makes it no name at all, so that nobody is asked. */
    struct finding finding = find("no..name");

    cr_assert_not(finding.is_found);
    cr_assert_not_null(finding.why);
}

Test(resolver, tells_nobody_who_has_cancelled)
{
    struct finding cancelled = {0};

    for (int i = 0; i < 20; i++) {
        resolver_cancel(start("127.0.0.1", &cancelled));
        (void)find("127.0.0.1");
    }
    cr_assert_eq(cancelled.calls, 0);
}

Test(resolver, a_numeric_address_needs_none)
{
    struct connection_target target;
    char number[] = "::1", name[] = "localhost", path[] = "/run/redis.sock";

    cr_assert(connection_resolve_numeric(&(struct conf_address){.host = number, .port = 1}, &target));
    cr_assert_eq(target.address.ss_family, AF_INET6);
    cr_assert(connection_resolve_numeric(&(struct conf_address){.path = path}, &target));
    cr_assert_eq(target.address.ss_family, AF_UNIX);
    cr_assert_not(connection_resolve_numeric(&(struct conf_address){.host = name, .port = 1}, &target));
}
