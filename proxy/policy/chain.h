/*
 * The chain of policies on one worker: it asks gates, tells observers and has requests translated, each loop over those
 * policies that have the piece. For each command it knows beforehand who is concerned.
 */
#ifndef HEADGATE_CHAIN_H
#define HEADGATE_CHAIN_H

#include "base/stats.h"
#include "policy/policy.h"

struct chain;
/* What the chain remembers of a request that policies passed or hold. */
struct chain_record;

/* The policies of the process, and what the instances of each share. */
struct chain_roster {
    const struct policy *const *list; /* ends with NULL */
    size_t count;
    void *shared[POLICIES_MAX];
};

/* list must outlive the roster. False, and nothing is left to be closed, when memory is short. */
bool chain_roster_open(struct chain_roster *roster, const struct policy *const *list, size_t threads);
/* All chains must be gone. */
void chain_roster_close(struct chain_roster *roster);

/* The roster must outlive the chain; rules are needed within the call only. NULL when memory is short. */
struct chain *chain_new(const struct chain_roster *roster, const struct conf_rule *rules, struct stats *stats,
                        const struct policy_host *host);
/* Gives the policies other rules. False when memory is short: some of them go on with those that they had. */
bool chain_reload(struct chain *chain, const struct conf_rule *rules);
/* Asks the policies anew what they want. */
void chain_reconsider(struct chain *chain);
void chain_free(struct chain *chain);

/* What the policies want of a command. */
struct chain_interest {
    uint32_t wanted;     /* bit n: gate n is to be asked; 0: nobody is */
    uint32_t group;      /* see chain_admit(); 0: none */
    uint32_t glances;    /* bit n: gate n tells at first sight whether a request concerns it, see chain_glance() */
    uint32_t translator; /* not 0: chain_translate() may say something else to Redis for it */
    uint32_t routers;    /* not 0: chain_route_reads() may say who answers its requests */
    uint32_t tag;        /* under which its requests are measured; POLICY_TAG_ASK: chain_measure() says it */
};

/* That of this command (NULL: an unknown one). It stays where it is for the life of the chain; a reload writes it anew.
 */
const struct chain_interest *chain_interest(const struct chain *chain, const struct command *command);

/* Whether any policy wants any command, and goes by who a client is. */
bool chain_wants_any(const struct chain *chain);

/* What a policy says to Redis in place of a command that has a translator, see struct policy_translator. */
enum policy_translation chain_translate(struct chain *chain, struct policy_request *request,
                                        enum policy_server_has server, struct slice *frame,
                                        struct policy_decision *decision);

/* Whether a router says who answers the request, which is whole: *reads is set then. */
bool chain_route_reads(const struct chain *chain, const struct policy_request *request, enum conf_reads *reads);

/*
 * Requests of commands with the same group, other than 0, may be put to chain_admit() together, which says how many of
 * them are admitted, from the first on: nothing is to be told of their replies. Each of the others is answered by
 * *decision, and chain_refused() is called for it; or put to chain_ask(), if the decision has a length of 0.
 */
uint32_t chain_admit(struct chain *chain, struct policy_request *request, uint32_t count,
                     struct policy_decision *decision);
void chain_refused(struct chain *chain, const struct command *command, const struct policy_decision *decision);

/*
 * What the policies want of one request, which is whole and outside of MULTI, of a command with glances: no more than
 * the gate of a group, or nothing at all, if none of the gates that glance is concerned; else the interest that was
 * given. framed: where its arguments lie in frame. attachments: of its client. As chain_interest(), it stays.
 */
const struct chain_interest *chain_glance(const struct chain *chain, const struct chain_interest *interest,
                                          const struct command *command, const struct resp_command *framed,
                                          const char *frame, void *const *attachments);

/*
 * Asks the policies; the verdict is never ADMIT. *record is NULL for a new request; it is set when a policy passed or
 * holds it, and then has to be given to chain_end() when the request has ended. After HOLD and WHOLE the same record is
 * given again: nobody is asked twice who has decided, unless there was a reload, see struct policy_gate.
 */
enum policy_verdict chain_ask(struct chain *chain, struct policy_request *request, struct policy_decision *decision,
                              struct chain_record **record);

/* Ends a request: each policy that passed it gets its on_reply; the record is void afterwards. record may be NULL. */
void chain_end(struct chain *chain, struct chain_record *record, const struct policy_client *client,
               enum policy_outcome outcome, struct slice head, uint64_t length, int64_t now_us);

/* The request was given to that connection to Redis: policies that follow it are told. */
void chain_sent(struct chain *chain, const struct chain_record *record, uint64_t lane, int64_t now_us);

/* The bytes that a record takes. */
size_t chain_record_size(void);

/* A counter of the policy at this place of the list. From any thread. */
uint64_t chain_counter(const struct chain *chain, size_t policy, size_t counter);

/* Puts an admin query to the policy at this place of the list, of which it is a verb: by run, or by ask. */
enum policy_answer chain_run_verb(struct chain *chain, size_t policy, const struct policy_verb *verb, size_t count,
                                  const struct slice *arguments, FILE *answer);
void chain_ask_verb(struct chain *chain, size_t policy, const struct policy_verb *verb, struct admin_query *admin_query,
                    size_t count, const struct slice *arguments);

/* The same for a stream of the policy at this place; see struct policy_stream. */
void *chain_open_stream(struct chain *chain, size_t policy, const struct policy_stream *stream, size_t count,
                        const struct slice *arguments, uint64_t *lines, FILE *why);
bool chain_read_stream(struct chain *chain, size_t policy, const struct policy_stream *stream, void *opened, FILE *text,
                       struct policy_stream_told *told);
void chain_close_stream(struct chain *chain, size_t policy, const struct policy_stream *stream, void *opened);

/* Whether a policy measures requests, and which of them it wants to hear of one by one: changes with a reload only, and
 * stays where it is. */
bool chain_measures(const struct chain *chain);
const struct policy_attention *chain_attention(const struct chain *chain);
/* These only if it does; see struct policy_observer. */
uint32_t chain_measure(struct chain *chain, struct policy_request *request);
bool chain_sample(struct chain *chain, const struct policy_sample *sample);
void chain_written(struct chain *chain, const struct policy_sample *sample);
void chain_spot(struct chain *chain, struct policy_request *request);
/* As in struct policy_observer; false where nobody measures. */
bool chain_tell_durations(struct chain *chain, uint32_t *at, policy_durations_told *told, void *context);

/* Whether any policy wants to be told what happens; changes with a reload only. */
bool chain_listens(const struct chain *chain);
/* Tells those that do; harmless if none does. Refusals are told by chain_ask(). */
void chain_happened(struct chain *chain, const struct policy_event *event);

/* Tells the policies who a client is (again). */
void chain_client(struct chain *chain, const struct policy_client *client);
void chain_client_closed(struct chain *chain, const struct policy_client *client);
void chain_tick(struct chain *chain, int64_t now_us);
/* While the process drains: whether all policies have done what they have to do first. */
bool chain_drain(struct chain *chain, size_t clients);
/* Brings the policies' gauges up to date. */
void chain_update_gauges(struct chain *chain);

#endif
