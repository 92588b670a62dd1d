/* Names that are looked up on a thread of their own. */
#include "net/resolver.h"

#include <criterion/criterion.h>
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
    struct connection_targets targets;
};

static void note(void *context, const struct connection_targets *targets)
{
    struct finding *finding = context;

    finding->calls++;
    finding->targets = *targets;
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

Test(resolver, tells_nobody_who_has_cancelled)
{
    struct finding cancelled = {0};

    for (int i = 0; i < 20; i++) {
        resolver_cancel(start("127.0.0.1", &cancelled));
        (void)find("127.0.0.1");
    }
    cr_assert_eq(cancelled.calls, 0);
}

static struct connection_targets targets_of(size_t count, const char *const hosts[])
{
    struct connection_targets all = {0};

    for (size_t i = 0; i < count; i++) {
        struct connection_targets one;
        char host[64];
        snprintf(host, sizeof host, "%s", hosts[i]);
        cr_assert(connection_resolve_numeric(&(struct conf_address){.host = host, .port = 7000}, &one));
        all.items[all.count++] = one.items[0];
    }
    return all;
}

Test(resolver, addresses_are_compared_whatever_their_order)
{
    const struct connection_targets first = targets_of(2, (const char *const[]){"127.0.0.1", "::1"});
    const struct connection_targets turned = targets_of(2, (const char *const[]){"::1", "127.0.0.1"});
    const struct connection_targets other = targets_of(2, (const char *const[]){"::1", "127.0.0.2"});
    const struct connection_targets fewer = targets_of(1, (const char *const[]){"::1"});

    cr_assert(connection_targets_equal(&first, &turned));
    cr_assert_not(connection_targets_equal(&first, &other));
    cr_assert_not(connection_targets_equal(&first, &fewer));
    cr_assert_eq(connection_targets_find(&first, &turned.items[0]), 1);
    cr_assert_eq(connection_targets_find(&first, &other.items[1]), 2, "it is none of them");
}
