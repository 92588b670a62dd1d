/*
 * What the files that make up the admin port share:
 *
 *   admin.c          listening; connections that come
 *   admin_session.c  one connection: requests in, answers out
 *   admin_guard.c    what is not obeyed: other protocols, other users
 *   admin_audit.c    who has changed what
 *   admin_reply.c    answers, by the version of RESP
 *   admin_verbs.c    what can be asked
 *   admin_help.c     … and what is told of it
 *   admin_stats.c    what is counted
 *   admin_lists.c    … of clients and connections, and the end of clients
 *   admin_gathering.c  … of workers, one after the other
 *   admin_nodes.c    … of the servers
 *   admin_policy.c   … of policies
 *   admin_stream.c   … and go on answering for a while
 *   admin_process.c  … of the process
 *   admin_config.c   … of its configuration
 *   admin_hello.c    what programs ask when they connect
 *   admin_drain.c    … its drain
 *   admin_servers.c  … of several servers: what they have in sum, and each by itself
 *   admin_manual.c   the manual page
 */
#ifndef HEADGATE_ADMIN_PRIVATE_H
#define HEADGATE_ADMIN_PRIVATE_H

#include "admin/admin.h"

#include "base/log.h"
#include "net/connection.h"
#include "net/peer.h"

#include <event2/buffer.h>
#include <event2/listener.h>
#include <string.h>
#include <strings.h>

/* Arguments of a request, with the verb. */
#define ADMIN_ARGUMENTS_MAX 16
/* … and with a server named ahead of it. */
#define ADMIN_WORDS_MAX (ADMIN_ARGUMENTS_MAX + 2)

struct admin {
    struct reactor *reactor;
    struct servers *servers;
    struct admin_host host;
    struct evconnlistener *listeners[PORT_OPEN_MAX];
    struct port ports[PORT_OPEN_MAX];
    bool tls[PORT_OPEN_MAX]; /* who connects there speaks it */
    size_t listener_count;
    struct event rest; /* until it fires, nothing is accepted */
    LIST_HEAD(, session_entry) sessions;
    LIST_HEAD(, admin_stream) streams; /* answers that go on */
    size_t session_count;
    size_t held_count;       /* of these, those whose answers policies take their time for */
    uint64_t sessions_given; /* since the start */
    int64_t started_us;
    int64_t started_s;              /* Unix time */
    struct admin_base **bases;      /* of each server, which may be NULL: see admin_servers.c; NULL: of none */
    struct mailbox mailbox;         /* for what workers send back */
    struct session_entry *changing; /* has set something that not all workers go by yet; NULL: nobody has */
    bool ending;                    /* the workers are gone: nothing more is taken */
    struct log_limiter refusals;
    struct log_limiter strangers;
    struct log_limiter outsiders;
    struct log_limiter denials;
    struct log_limiter wrong_passwords;
};

/* What who has given a password may do. */
enum admin_rights { ADMIN_RIGHTS_NONE, ADMIN_RIGHTS_READ, ADMIN_RIGHTS_ALL };

/* The servers that are asked about: from the first, up to the end. */
struct admin_scope {
    size_t first;
    size_t end;
    bool is_named; /* the one that was asked for */
};

/* One admin connection. */
struct session_entry {
    struct admin *admin;
    LIST_ENTRY(session_entry) of_admin;
    struct connection connection;
    struct buffer input; /* bytes from the start of the first request that was not taken yet */
    struct evbuffer *output;
    struct resp_command command;
    char address_text[64];
    int64_t moved_us;         /* when bytes came or went last, or an answer was there */
    struct admin_scope scope; /* of the request */
    bool is_unix;
    bool has_peer;    /* the kernel has told whose the other end is */
    bool is_unmet;    /* … or could not be asked yet, as there was no descriptor */
    struct peer peer; /* who connected */
    uint64_t id;
    int resp;                 /* 2 or 3 */
    char name[64];            /* by CLIENT SETNAME */
    enum admin_rights rights; /* by a password */
    char audit[400];          /* the change that is asked for; "": none */
    size_t audit_sure;        /* so much of it is shown if nothing was changed: see admin_audit_hide(); 0: all */
    char audit_who[120];
    char *changes;    /* that RELOAD VERBOSE is to tell of once they are in force; NULL: none */
    bool is_held;     /* one of the admin port's held_count */
    bool gathering;   /* an answer is being gathered, or a policy thinks: nothing else is taken meanwhile */
    bool closed;      /* the connection is gone, but who brings the answer still refers to this */
    bool last;        /* no request is taken any more; closed once the output is written */
    bool input_ended; /* nothing more comes: closed once what came is answered */
    bool failed;      /* memory was short within an answer, or it does not speak our protocol: to be closed at once */
};

/* ---- admin_reply.c ---- */

/* A text that grows. */
struct admin_text {
    struct evbuffer *bytes;
    bool is_lost; /* memory was short: it is not whole */
};

/* False when memory is short. */
bool admin_text_open(struct admin_text *text);
void admin_text_close(struct admin_text *text);
void admin_text_add(struct admin_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

void admin_reply_text(struct session_entry *session, const char *text, size_t length);
/* An error in its place if it is not whole. */
void admin_reply_gathered(struct session_entry *session, struct admin_text *text);
void admin_reply_status(struct session_entry *session, const char *text);
/* text: one line, with its first word in capitals; whatever is in it, it is shown as one. */
void admin_reply_error(struct session_entry *session, const char *text);
/* What is wrong with a configuration, one line each, as one error. */
void admin_reply_faults(struct session_entry *session, char *faults);
/* A text of lines, to be shown. */
void admin_reply_verbatim(struct session_entry *session, const char *text, size_t length);
/* As a part of one line, with all but printable ASCII as \xHH. */
void admin_reply_shown(struct session_entry *session, struct slice text);
/* As it is. */
void admin_reply_bytes(struct session_entry *session, const char *bytes, size_t length);

/* In RESP2 these are the same as admin_reply_gathered().
 * Lines of fields, "name=value name=\"value\" …": in RESP3 an array of maps. */
void admin_reply_lines(struct session_entry *session, struct admin_text *text);
/* Lines "name:value" under "# Section": in RESP3 a map of maps. */
void admin_reply_sections(struct session_entry *session, struct admin_text *text);
/* So many names and values in turn, written as RESP: in RESP2 an array, in RESP3 a map. */
void admin_reply_pairs(struct session_entry *session, size_t pairs, struct admin_text *text);

/* ---- admin_session.c ---- */

/* Takes over fd, of who speaks TLS or not. NULL when memory is short; fd is the caller's then. */
struct session_entry *admin_session_open(struct admin *admin, int fd, const struct sockaddr_storage *address, bool tls);
/* Closes the connection now; the session is void, unless somebody is about to bring it an answer. */
void admin_session_close(struct session_entry *session);
/* Closes what has not moved for longest, for another connection. False: something is gathered for all of them. */
bool admin_session_make_room(struct admin *admin);
/* There will be no turn that writes the rest of the output. What the socket does not take is lost. */
void admin_session_write_rest(struct session_entry *session);
/* Nothing more is taken from the session until admin_session_resume(), which it outlives even if it is closed. */
void admin_session_pause(struct session_entry *session);
/* The same until a policy has answered, whose time it is to take. False: too many wait for such, which it is told. */
bool admin_session_hold(struct session_entry *session);
void admin_session_resume(struct session_entry *session);
/* Writes what there is, as far as the socket takes it; the session may be closed afterwards. It is paused. */
void admin_session_flush(struct session_entry *session);

/* ---- admin_guard.c ---- */

/* Whether the bytes at the start of a request are of another protocol than Redis', as far as the first ones tell. */
bool admin_guard_is_binary(struct slice input);
/* Whether the line, which is to be taken for a request, is one of HTTP, or no text at all. */
bool admin_guard_is_foreign_line(struct slice line);
/* Whether a request has the name of what HTTP says, as Redis looks at it. */
bool admin_guard_is_foreign_name(struct slice name);
/* Whether who asks may change something. False: it is told why not. */
bool admin_guard_may_change(struct session_entry *session);
/* Asks the kernel whose the other end is, which is kept: later there may be no descriptor to ask by. */
void admin_guard_meet(struct session_entry *session);
/* Whether it may ask anything: it has given the password; without one, it is not known to be of another user. */
bool admin_guard_is_trusted(const struct session_entry *session);
/* Answers who is not trusted. */
void admin_guard_turn_away(struct session_entry *session);
/* Whether there is a password to give. */
bool admin_guard_has_password(const struct session_entry *session);
/* Takes the password, as the rights that it gives from now on. False: it is none of ours, and nothing changes. There
 * has to be one. */
bool admin_guard_login(struct session_entry *session, struct slice password);

/* ---- admin_audit.c ---- */

/* A change begins, or ends. Without a beginning the end is nothing. */
void admin_audit_begin(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_audit_end(struct session_entry *session, const char *how);
/* Nothing was changed: what follows a secret may be a part of it, and is not to be shown. */
void admin_audit_hide(struct session_entry *session);
/* A change that who asks may not make. */
void admin_audit_refused(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_audit_wrong_password(struct session_entry *session);

/* ---- admin_verbs.c ---- */

/* Answers a request, now or when the workers have told what it takes. */
void admin_run(struct session_entry *session, size_t count, const struct slice *arguments);
/* What is told of a verb. */
struct admin_verb_told {
    const char *name;
    const char *usage;
    const char *help;
    enum policy_verb_effect effect;
    const char *example; /* NULL: see admin_help.c */
};

/* Tells each of the admin port's own verbs. */
void admin_verbs_tell(void (*tell)(void *context, const struct admin_verb_told *verb), void *context);

/* The roster of policies, which all servers have in common. */
static inline const struct chain_roster *admin_policies(const struct admin *admin)
{
    return &admin->servers->list[0].worker_pool.policies;
}

/* Something was refused, or a session closed for another one. Of each server, as it is of the process. */
static inline void admin_count_refused(const struct admin *admin)
{
    for (size_t i = 0; i < admin->servers->count; i++) {
        stats_add(&admin->servers->list[i].stats, STATS_ADMIN_REFUSED, 1);
    }
}

/* Whether lines of an answer say which server they are about. */
static inline bool admin_names_servers(const struct session_entry *session)
{
    return session->scope.end - session->scope.first > 1;
}

/* ---- admin_process.c ---- */

/* Verbs: each answers at once, but for UPGRADE. */
void admin_process_version(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_process_shutdown(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_process_upgrade(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_process_auth(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_process_quit(struct session_entry *session, size_t count, const struct slice *arguments);

/* ---- admin_hello.c ---- */

/* Verbs. */
void admin_hello_ping(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_hello_command(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_hello_select(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_hello_client(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_hello(struct session_entry *session, size_t count, const struct slice *arguments);

/* ---- admin_help.c ---- */

/* The verb HELP. */
void admin_run_help(struct session_entry *session, size_t count, const struct slice *arguments);

/* ---- admin_stats.c ---- */

/* Verbs. */
void admin_run_stats(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_run_info(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_run_resetstat(struct session_entry *session, size_t count, const struct slice *arguments);

/* ---- admin_config.c ---- */

/* The workers are gone: whoever waits for them is told. */
void admin_config_end(struct admin *admin);
/* Verbs. RELOAD, CONFIG SET and LOGLEVEL with a level answer once all workers go by it. */
void admin_config(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_config_get(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_config_show(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_config_set(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_config_rewrite(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_config_reload(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_loglevel(struct session_entry *session, size_t count, const struct slice *arguments);

/* ---- admin_drain.c ---- */

/* The verb DRAIN. */
void admin_run_drain(struct session_entry *session, size_t count, const struct slice *arguments);

/* ---- admin_servers.c ---- */

/* SERVERS: a line for each. */
void admin_tell_servers(struct session_entry *session);
/* For the section Server of STATS, about those of the request. */
void admin_add_servers(struct admin_text *text, const struct session_entry *session);
/* What RESETSTAT does, for the servers of the request. False: memory is short. */
bool admin_reset_counters(struct session_entry *session);
void admin_free_bases(struct admin *admin);
/* Unix time: of the start, or of the last RESETSTAT. */
int64_t admin_counting_since(const struct session_entry *session);
/* The sum over the servers of the request, since then. */
uint64_t admin_stat(const struct session_entry *session, enum stats_id id);
uint64_t admin_policy_counter(const struct session_entry *session, size_t policy, size_t counter);

/* ---- admin_lists.c: verbs ---- */

void admin_run_clients(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_run_lanes(struct session_entry *session, size_t count, const struct slice *arguments);
void admin_run_kill(struct session_entry *session, size_t count, const struct slice *arguments);

/* ---- admin_nodes.c ---- */

/* The verb NODES. */
void admin_run_nodes(struct session_entry *session, size_t count, const struct slice *arguments);

/* ---- admin_policy.c ---- */

/* Puts an admin query to a policy, by its place in the list. The session is told the answer, and waits for it. */
void admin_ask_policy(struct session_entry *session, size_t policy, const struct policy_verb *verb, size_t count,
                      const struct slice *arguments);

/* ---- admin_stream.c ---- */

/* The same for a verb whose answer goes on. */
void admin_open_stream(struct session_entry *session, size_t policy, const struct policy_verb *verb, size_t count,
                       const struct slice *arguments);
/* The workers are gone: ends all that are under way. */
void admin_streams_end(struct admin *admin);

#endif
