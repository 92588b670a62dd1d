/* CL.THROTTLE and DELIFEQ: what is sent in their place, and what is answered at once. */
#include "../../support/fake_host.h"

#include <criterion/criterion.h>
#include <string.h>

extern const struct policy added_commands_policy;

#define ANSWERED "answered: -"
#define CELL ANSWERED "Cell error: Store error: "
#define USAGE CELL "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
#define NO_INTEGER CELL "Couldn't parse as integer: "
#define ARITY(name) ANSWERED "ERR wrong number of arguments for '" name "' command"

static struct fake_client *join(void)
{
    return fake_join(fake_host_new(&added_commands_policy, "", 1), 0, "10.0.0.1", "");
}

static void leave(struct fake_client *client)
{
    fake_host_free(client->host);
}

/* What is faulty is answered in the words of the module, and nothing is sent. */
Test(added_commands, errors)
{
    static const struct {
        const char *request, *said;
    } rows[] = {
        {"CL.THROTTLE", USAGE},
        {"CL.THROTTLE k 1 1", USAGE},
        {"CL.THROTTLE k 1 1 1 1 1", USAGE},
        {"CL.THROTTLE k 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", USAGE},
        {"CL.THROTTLE k x 1 1", NO_INTEGER "x"},
        {"CL.THROTTLE k 1  1", NO_INTEGER},
        {"CL.THROTTLE k 1 1 1.0 y", NO_INTEGER "1.0"},
        {"CL.THROTTLE k 1 1 1 9223372036854775808", NO_INTEGER "9223372036854775808"},
        {"CL.THROTTLE k 1 1 a\r\n-b", NO_INTEGER "a  -b"},
        {"CL.THROTTLE k 1 0 1", CELL "Zero rates are not supported"},
        {"CL.THROTTLE k 1 1 0", CELL "Zero rates are not supported"},
        {"DELIFEQ", ARITY("delifeq")},
        {"DELIFEQ a", ARITY("delifeq")},
        {"DELIFEQ a b c", ARITY("delifeq")},
        {"DELIFEQUALS", ARITY("delifequals")},
        {"DELIFEQUALS a", ARITY("delifequals")},
        {"DELIFEQUALS a b c", ARITY("delifequals")},
    };
    struct fake_client *client = join();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_expect_str_eq(fake_translation(client, rows[i].request, POLICY_SERVER_LACKS), rows[i].said, "%s: %s",
                         rows[i].request, fake_translation(client, rows[i].request, POLICY_SERVER_LACKS));
    }
    leave(client);
}

/* "EVAL script 1", then this; the last word is "try" for a script that tries the command itself first. */
static void assert_sent(struct fake_client *client, const char *request, enum policy_server_has server,
                        const char *rest)
{
    const char *said = fake_translation(client, request, server);
    size_t length = strlen(said), end = strlen(rest);

    cr_expect_eq(strncmp(said, "EVAL ", 5), 0, "%s: %s", request, said);
    cr_expect(length > end && strcmp(&said[length - end], rest) == 0, "%s: %s", request, said);
}

Test(added_commands, scripts)
{
    struct fake_client *client = join();

    assert_sent(client, "DELIFEQ a b", POLICY_SERVER_LACKS, " 1 a b ");
    assert_sent(client, "delifeq a b", POLICY_SERVER_UNKNOWN, " 1 a b try");
    assert_sent(client, "Cl.Throttle k +4 0001 3600", POLICY_SERVER_LACKS, " 1 k +4 0001 3600 1 ");
    leave(client);
}

/* A client that is asked about leaves no trace in what the next one sends. */
Test(added_commands, one_after_the_other)
{
    struct fake_client *client = join();

    assert_sent(client, "DELIFEQ a-long-key-behind-which-a-shorter-one-comes a-long-value", POLICY_SERVER_LACKS,
                " 1 a-long-key-behind-which-a-shorter-one-comes a-long-value ");
    assert_sent(client, "DELIFEQ a b", POLICY_SERVER_LACKS, " 1 a b ");
    cr_assert_str_eq(fake_verdict(client, "DELIFEQ a b"), "pass");
    leave(client);
}
