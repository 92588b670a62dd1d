/* A chain of three policies that decide as a test says, and write down what they are called for. */
#ifndef HEADGATE_TESTS_CHAIN_FIXTURE_H
#define HEADGATE_TESTS_CHAIN_FIXTURE_H

#include "policy/chain.h"

/* ---- the policies ---- */

struct fake {
    char letter;
    enum policy_verdict verdict; /* what it decides */
    uint64_t last_ticket;
    uint32_t holds; /* as it was told when last asked */
    int64_t received_us;
    int64_t hold_until_us;
    bool refuses_to_start;
    bool wants_gets_only;
    bool wants_nothing;
    bool fails_to_reload;
    bool is_drained;
    bool is_deaf;
    const char *rule; /* by which it decides; NULL: none */
    struct policy_event heard;
    _Atomic uint64_t *counters;
    struct policy_reply told;
    char told_head[RESP_HEAD_KEPT + 1];
};

/* The instances of policy a, b and c. */
extern struct fake fakes[3];

/*
 * Each call as one word: "a?1" policy a was asked and had ticket 1 before, "a=" with the ticket of the reply it was
 * told of, "a!" a client was closed, "a^" who a client is, "a~" a tick, "a-" a drain, "a@" a reload, "a*" what
 * happened, by its kind, "a." stop.
 */
extern char fake_calls[1000];
void fake_write_down(const struct fake *fake, const char *format, unsigned long long number);

#define assert_calls(expected)                                                                                         \
    do {                                                                                                               \
        cr_assert_str_eq(fake_calls, expected);                                                                        \
        fake_calls[0] = '\0';                                                                                          \
    } while (0)

/* Hooks, for policies of a test's own. */
void *fake_start_a(const struct policy_start *with);
void *fake_start_b(const struct policy_start *with);
void *fake_start_c(const struct policy_start *with);
bool fake_wants(void *instance, const struct command *command);
enum policy_verdict fake_on_request(void *instance, const struct policy_request *request,
                                    struct policy_decision *decision);
bool fake_reload(void *instance, const struct conf_rule *rules);
void fake_stop(void *instance);

extern const struct policy fake_policy_a, fake_policy_b, fake_policy_c;
/* A gate that gives nothing but what it must. */
extern const struct policy_gate fake_bare_gate;
/* One that gives nothing but what it must, and that gate; its instance is that of b. */
extern const struct policy fake_bare;
/* a, b and c. */
extern const struct policy *const fake_policies[];

/* ---- the chain ---- */

extern struct chain *chain;
extern struct chain_roster chain_roster;
extern struct stats fake_stats;
extern const struct conf_rule fake_rule;
extern void *fake_attachments[POLICIES_MAX];
extern const struct policy_client fake_client;

/* The .init of a test, with a chain of a, b and c that all pass, and its .fini. */
void open_chain(void);
void close_chain(void);

/* A chain of these policies in place of the one there is, NULL if one does not start; forgets what was written down. */
void use_policies(const struct policy *const *list);
/* Another chain, as a second worker has it; the caller's. */
struct chain *chain_of_roster(void);

const struct command *get(void);
bool is_wanted(const struct command *command);
uint32_t group_of(const struct command *command);

/* ---- requests ---- */

/* What is asked about is the beginning of a request. */
extern bool fake_request_is_partial;

/* Asks about a GET. */
enum policy_verdict ask(struct chain_record **record);
enum policy_verdict ask_at(struct chain_record **record, struct policy_decision *decision, int64_t now_us);
/* Asks about a command that Headgate does not know. */
enum policy_verdict ask_of_unknown(struct chain_record **record);
void end(struct chain_record *record, enum policy_outcome outcome, const char *head);

#endif
