/* By what a client is known, and whom a configuration lets in. */
#include "../../support/address.h"
#include "net/admission.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 4

/* ---- facts ---- */

static struct conf_rule *rule_of(const char *name, const char *const options[WORDS_MAX][2])
{
    struct conf_rule *rule = conf_rule_new(&identity_section, name, 1);
    char problem[CONF_PROBLEM_MAX];

    for (size_t i = 0; i < WORDS_MAX && options[i][0] != NULL; i++) {
        const struct conf_option *option = conf_section_option(&identity_section, options[i][0]);
        cr_assert_not_null(option, "%s", options[i][0]);
        cr_assert(conf_value_set(option, rule->values, options[i][1], problem), "%s", problem);
    }
    return rule;
}

static bool fits(const char *const options[WORDS_MAX][2], const struct identity_facts *facts)
{
    struct conf_rule *rule = rule_of("a", options);
    char problem[CONF_PROBLEM_MAX] = "";
    const char *expected = "";
    struct identity identity;

    const char *at_fault = identity_section.check(rule->values, problem, &expected);
    cr_assert_null(at_fault, "%s: %s", at_fault, problem);
    identity_compile(&identity, 0, rule);
    bool is = identity_fits(&identity, facts);
    identity_clear(&identity);
    conf_rules_free(rule);
    return is;
}

/* ---- certificates ---- */

static bool fits_certificate(const char *words, const struct identity_certificate *certificate)
{
    const char *const options[WORDS_MAX][2] = {{"certificate", words}};
    const struct sockaddr_storage address = address_of("192.0.2.1");
    const struct identity_facts facts = {.address = &address, .certificate = certificate};

    return fits(options, &facts);
}

Test(identity, goes_by_certificates)
{
    static const char *const names[] = {"dns:Web-1.Shop.Example", "uri:spiffe://shop/ns/web", "email:ops@shop.example",
                                        "ip:10.0.0.7", "dns:*.wild.example"};
    static const struct identity_certificate certificate = {
        .common_name = "Billing Service, Ltd",
        .issuer = "CN=Shop Internal CA,O=Shop",
        .alternatives = names,
        .alternative_count = sizeof names / sizeof names[0],
    };
    /* With bars between them. Of one kind one is enough, and of each kind one is needed. */
    char fitting[] =
        "cn:Billing?Service*|cn:Billing*|cn:*|san:dns:web-1.shop.example|san:dns:WEB-1.shop.EXAMPLE|"
        "san:dns:*.shop.example|san:web-*.shop.example|san:ops@shop.example|san:email:ops@*|"
        "san:uri:spiffe://shop/*|san:spiffe://shop/ns/web|san:ip:10.0.0.7|san:10.0.0.7|san:dns:\\*.wild.example|"
        "issuer:*Shop?Internal?CA*|cn:Other cn:Billing*|cn:Billing* issuer:*Internal*";
    char others[] =
        "cn:billing*|cn:Billing|cn:\\*|san:dns:shop.example|san:dns:ops@shop.example|san:uri:spiffe://other/*|"
        "san:ip:10.0.0.70|san:dns:a.wild.example|issuer:*Other*|cn:Billing* issuer:*Other*|"
        "cn:Other issuer:*Internal*|san:dns:none.example issuer:*Internal*";
    char *rest = fitting;

    for (char *words = strsep(&rest, "|"); words != NULL; words = strsep(&rest, "|")) {
        cr_expect(fits_certificate(words, &certificate), "%s", words);
        cr_expect_not(fits_certificate(words, NULL), "%s without a certificate", words);
    }
    rest = others;
    for (char *words = strsep(&rest, "|"); words != NULL; words = strsep(&rest, "|")) {
        cr_expect_not(fits_certificate(words, &certificate), "%s", words);
    }
}

Test(identity, takes_names_of_certificates_for_texts)
{
    char long_name[600] = "dns:";
    const char *const globs[] = {"dns:*", "dns:", "*", "uri:", long_name};
    const struct identity_certificate hostile = {
        .common_name = "*", .issuer = "?*", .alternatives = globs, .alternative_count = 5};

    memset(long_name + 4, 'a', sizeof long_name - 5);
    cr_expect(!fits_certificate("cn:web", &hostile));
    cr_expect(!fits_certificate("issuer:CA", &hostile));
    cr_expect(!fits_certificate("san:dns:web", &hostile));
    cr_expect(!fits_certificate("san:uri:*", &hostile), "an empty name is none");
    cr_expect(fits_certificate("cn:\\*", &hostile));
    cr_expect(fits_certificate("san:dns:a*a", &hostile));
}

Test(identity, takes_no_empty_name_for_one)
{
    const struct identity_certificate empty = {.common_name = "", .issuer = ""};
    const struct identity_certificate none = {.common_name = NULL};

    cr_expect(!fits_certificate("cn:*", &empty));
    cr_expect(!fits_certificate("issuer:*", &empty));
    cr_expect(!fits_certificate("cn:*", &none));
    cr_expect(!fits_certificate("san:*", &none));
}

/* ---- the rest ---- */

Test(identity, goes_by_all_kinds_together)
{
    const struct sockaddr_storage near = address_of("10.1.2.3"), mapped = address_of("::ffff:10.1.2.3"),
                                  far = address_of("192.0.2.1"), six = address_of("2001:db8::1"),
                                  local = address_of("unix");
    const struct identity_peer peer = {.uid = 33, .groups = {44, 55}, .group_count = 2};
    const struct identity_certificate web = {.common_name = "web"};
    static const char *const network[WORDS_MAX][2] = {{"address", "ip:10.0.0.0/8 2001:db8::/32"}};
    static const char *const holder[WORDS_MAX][2] = {{"address", "10.0.0.0/8"}, {"certificate", "cn:web"}};
    static const char *const socket[WORDS_MAX][2] = {{"peer", "uid:34 gid:55"}};
    static const char *const user[WORDS_MAX][2] = {{"user", "batch-* app"}};
    static const char *const all[WORDS_MAX][2] = {
        {"address", "10.0.0.0/8"}, {"certificate", "cn:web"}, {"user", "app"}};
    const struct {
        const char *const (*options)[2];
        struct identity_facts facts;
        bool fits;
    } cases[] = {
        {network, {.address = &near}, true},
        {network, {.address = &mapped}, true},
        {network, {.address = &six}, true},
        {network, {.address = &far}, false},
        {network, {.address = &local, .peer = &peer}, false},
        {holder, {.address = &near}, false},
        {holder, {.address = &far, .certificate = &web}, false},
        {holder, {.address = &near, .certificate = &web}, true},
        {socket, {.address = &local, .peer = &peer}, true},
        {socket, {.address = &local}, false},
        {socket, {.address = &near}, false},
        {user, {.address = &near, .user = "batch-7"}, true},
        {user, {.address = &near, .user = "app"}, true},
        {user, {.address = &near, .user = "app2"}, false},
        {user, {.address = &near, .user = ""}, false},
        {user, {.address = &near}, false},
        {all, {.address = &near, .certificate = &web, .user = "app"}, true},
        {all, {.address = &near, .certificate = &web}, false},
        {all, {.address = &near, .user = "app"}, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect_eq(fits(cases[i].options, &cases[i].facts), cases[i].fits, "case %zu", i);
    }
}

/* ---- who is let in ---- */

struct door {
    const char *allow, *refuse;
};

static struct admission *open_door(struct door door)
{
    static const char *const web[WORDS_MAX][2] = {{"certificate", "cn:web"}};
    static const char *const near[WORDS_MAX][2] = {{"address", "10.0.0.0/8"}};
    struct conf_rule *rules = rule_of("web", web);
    char *allow = strdup(door.allow), *refuse = strdup(door.refuse);
    char problem[CONF_PROBLEM_MAX] = "";
    const char *expected;

    rules->next = rule_of("near", near);
    cr_assert(admission_check_clients(allow, rules, problem, &expected), "%s: %s", allow, problem);
    cr_assert(admission_check_clients(refuse, rules, problem, &expected), "%s: %s", refuse, problem);
    const struct conf conf = {.listener_terms = {.allow = allow, .refuse = refuse}, .rules = rules};
    struct admission *admission = admission_new(&conf);
    conf_rules_free(rules);
    free(allow);
    free(refuse);
    return admission;
}

Test(admission, refuses_first_and_then_asks_who_is_allowed)
{
    const struct sockaddr_storage near = address_of("10.0.0.1"), far = address_of("192.0.2.1"),
                                  local = address_of("unix");
    const struct identity_certificate web = {.common_name = "web"};
    const struct {
        struct door door;
        struct identity_facts facts;
        bool at_first; /* whether it may go on to show a certificate */
        bool at_last;
    } cases[] = {
        {{"", ""}, {.address = &far}, true, true},
        {{"all", ""}, {.address = &far}, true, true},
        {{"", "all"}, {.address = &far}, false, false},
        {{"all", "all"}, {.address = &far}, false, false},
        {{"unix", ""}, {.address = &local}, true, true},
        {{"unix", ""}, {.address = &near}, false, false},
        {{"", "unix"}, {.address = &local}, false, false},
        {{"ip:0.0.0.0/0", ""}, {.address = &local}, false, false},
        {{"ip:10.0.0.0/8", "ip:10.0.0.1"}, {.address = &near}, false, false},
        {{"identity:web", ""}, {.address = &far, .certificate = &web}, true, true},
        {{"identity:web", ""}, {.address = &far}, true, false},
        {{"identity:web", ""}, {.address = &near}, true, false},
        {{"identity:*", ""}, {.address = &near}, true, true},
        {{"identity:*", ""}, {.address = &far}, true, false},
        {{"", "identity:web"}, {.address = &far, .certificate = &web}, true, false},
        {{"", "identity:web"}, {.address = &far}, true, true},
        {{"identity:web", "ip:192.0.2.0/24"}, {.address = &far, .certificate = &web}, false, false},
        {{"ip:10.0.0.0/8 identity:web", ""}, {.address = &far, .certificate = &web}, true, true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct admission *admission = open_door(cases[i].door);
        const struct identity *identity = admission_identify(admission, &cases[i].facts);
        const struct identity_facts before = {.address = cases[i].facts.address};
        cr_expect_eq(
            admission_lets_in(admission, 0, ADMISSION_ADDRESS, &before, admission_identify(admission, &before)),
            cases[i].at_first, "case %zu at first", i);
        cr_expect_eq(admission_lets_in(admission, 0, ADMISSION_WHOLE, &cases[i].facts, identity), cases[i].at_last,
                     "case %zu", i);
        admission_release(admission);
    }
}
