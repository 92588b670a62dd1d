/* The lease policy on the fake host. */
#ifndef HEADGATE_TESTS_LEASE_HOST_H
#define HEADGATE_TESTS_LEASE_HOST_H

#include "../../support/fake_host.h"
#include "lease_request.h"

/* rules: the text of an ini file. */
struct fake_host *lease_host_new(const char *rules, size_t workers);
/* Checks that what was told of leases is what was counted, and ends it. */
void lease_host_free(struct fake_host *host);
/* The same with all that are left. */
void lease_host_end(void);
/* A test that ends with that. In a suite's .fini what fails, or crashes, would not count. */
#define LEASE_TEST(suite, name)                                                                                        \
    static void name(void);                                                                                            \
    Test(suite, name)                                                                                                  \
    {                                                                                                                  \
        name();                                                                                                        \
        lease_host_end();                                                                                              \
    }                                                                                                                  \
    static void name(void)
/* Whether LEASES has exactly one line, which has this in it; or, if it is NULL, none. */
bool lease_host_lists(struct fake_host *host, const char *part);

#endif
