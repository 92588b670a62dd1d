/* Networks: which texts name one, and which addresses are in it. */
#include "../../support/address.h"
#include "base/subnet.h"

#include <criterion/criterion.h>
#include <string.h>

static struct subnet parsed(const char *text)
{
    struct subnet subnet = {.prefix = 0};

    cr_assert(subnet_parse(&subnet, slice_of(text)), "%s", text);
    return subnet;
}

static bool has(const char *network, const char *address)
{
    struct subnet subnet = parsed(network);
    struct sockaddr_storage from = address_of(address);

    return subnet_has(&subnet, &from);
}

Test(subnet, has)
{
    static const struct {
        const char *network, *address, *other;
    } rows[] = {
        {"10.0.0.0/8", "10.250.3.4", "11.0.0.1"},
        {"10.9.9.9/8", "10.250.3.4", "11.9.9.9"}, /* what lies beyond the bits does not count */
        {"10.1.2.3", "10.1.2.3", "10.1.2.4"},
        {"10.1.2.0/23", "10.1.3.255", "10.1.4.0"},
        {"0.0.0.0/0", "1.2.3.4", "2001:db8::1"},
        {"10.0.0.0/8", "::ffff:10.2.3.4", "::ffff:11.2.3.4"}, /* IPv4 on an IPv6 socket */
        {"::ffff:10.0.0.0/104", "10.2.3.4", "11.2.3.4"},
        {"2001:db8::/33", "2001:db8:1::5", "2001:db8:8000::5"},
        {"::1", "::1", "::2"},
        {"::/0", "2001:db8::1", "a Unix socket"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_expect(has(rows[i].network, rows[i].address), "%s in %s", rows[i].address, rows[i].network);
        cr_expect_not(has(rows[i].network, rows[i].other), "%s in %s", rows[i].other, rows[i].network);
    }
}

Test(subnet, is_all)
{
    const char *const all[] = {"::/0", "0.0.0.0/0", "1.2.3.4/0"};
    const char *const some[] = {"2001:db8::/96", "10.0.0.0/8", "::1", "::ffff:0.0.0.0/97"};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct subnet subnet = parsed(all[i]);
        cr_assert(subnet_is_all(&subnet), "%s", all[i]);
    }
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        struct subnet subnet = parsed(some[i]);
        cr_assert_not(subnet_is_all(&subnet), "%s", some[i]);
    }
}

Test(subnet, that_are_none)
{
    char texts[] = "|10.0.0|10.0.0.0/|10.0.0.0/33|10.0.0.0/x|10.0.0.0/8x|10.0.0.0/-1|10.0.0.0/ "
                   "8|10.0.0.0/8/8|256.0.0.1|::1/129|[::1]|localhost|/8|::1%lo|10.0.0.0/"
                   "99999999999999999999|1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111";
    char *rest = texts;
    struct subnet subnet;

    for (char *text = strsep(&rest, "|"); text != NULL; text = strsep(&rest, "|")) {
        cr_assert_not(subnet_parse(&subnet, slice_of(text)), "%s", text);
    }
    cr_assert_not(subnet_parse(&subnet, (struct slice){"10.0.0.1\0x", 10}), "a NUL ends no address");
}
