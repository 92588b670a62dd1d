/*
 * The policy contract. A policy is one file, or a folder, under policies/ and one line in policies.c. What every policy
 * has is in struct policy: its name, the tables of its options, counters and verbs, and its life on each worker. What
 * it does with requests is in up to four pieces, of which it brings those that it needs:
 *
 *   gate        decides about requests: pass, answer, hold, close      deny, limit, lease
 *   observer    measures requests, and hears what happens              latency
 *   router      says who answers a request that only reads             route
 *   translator  says something else to Redis in place of a command     added_commands
 *
 *   request ─► gates, in the order of policies.c, until one does not let it through
 *           ─► the routers and the translator of its command ─► Redis ─► reply ─► the gates that are owed an on_reply
 *           ─► the observer
 *
 * A policy does no I/O and knows nothing of connections or of the event loop. Each worker has an instance of its own,
 * and all hooks of an instance are called on the thread of its worker: they need no lock, must not wait, and should
 * take microseconds at most. What all instances have in common (a limit holds over all workers) is in an object that
 * they share, which is the policy's to lock. Requests, clients, samples and what is in them are lent for the length of
 * the call; what a policy wants to keep of them, it copies. Of the host a hook may use everything that struct
 * policy_host has, unless it says otherwise.
 */
#ifndef HEADGATE_POLICY_H
#define HEADGATE_POLICY_H

#include "base/stats.h"
#include "base/text.h"
#include "command/command.h"
#include "conf/conf_table.h"
#include "resp/word.h"
#include "upstream/script.h"

#include <assert.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Policies in one build. */
#define POLICIES_MAX 8
/* Sections of the ini file in one build. */
#define POLICY_SECTIONS_MAX 16
/* The longest answer a policy can give, in bytes. */
#define POLICY_TEXT_MAX 512

struct policy_client {
    uint64_t id;                            /* unique in this process */
    const struct sockaddr_storage *address; /* AF_UNIX for a Unix socket */
    const char *address_text;
    const char *user;          /* Redis' name for the user that the client is now */
    const char *name;          /* of CLIENT SETNAME; "" for none */
    const char *identity_name; /* of [identity:NAME]; "" for none */
    int64_t database;          /* that it has selected; -1: nobody knows, as Redis did not answer */
    /* Another one whenever user, name or the identity of the file may have changed. */
    uint32_t identity;
    void **attachments; /* the chain's; a policy sees its own in the request */
    void *connection;   /* for what the host knows of who is at its other end: until on_client_close() */
    /* Its connection was reset, or it had ended its stream before what is under way was answered: nothing shows that it
     * hears of that. */
    bool is_broken;
    int64_t active_us; /* when a byte came from it, or was written to it, last */
};

/* Who is at the other end of a client's connection, as far as this machine can tell. */
struct policy_peer {
    bool has_uid;
    uid_t uid;        /* of the user whose the process is */
    int64_t pid;      /* of the process; 0: it cannot be told (yet) */
    uint64_t started; /* tells it from earlier ones of that pid; 0: cannot be told */
    bool is_headgate; /* the process is another Headgate, or this one: clients of its own are behind it */
    const char *why;  /* without a pid: why, for a person; a constant text */
};

/* LATER: to look through all processes would take too long now. Ask again at a tick. */
enum policy_peer_search { POLICY_PEER_TOLD, POLICY_PEER_LATER };

struct policy_request {
    const struct policy_client *client;
    const struct command *command; /* NULL: Headgate does not know it, … */
    const struct command *learned; /* … and this is what Redis has told of it, which stays; NULL: nothing */
    struct slice name;             /* as the client wrote it: not to be shown to others unless it is known */
    struct slice frame;            /* the command in multibulk form, whole unless partial */
    bool partial;                  /* a long request that is forwarded as it comes: the frame is its beginning */
    /* How far it has come, and where its first arguments lie: what is asked again need not be framed again. */
    const struct resp_command *framed;
    bool in_transaction;     /* between MULTI and EXEC */
    uint32_t argument_count; /* announced, with the name */
    uint32_t holds;          /* how often this request was held already */
    int64_t received_us;     /* when the loop iteration began in which its last byte was read (partial: the last that is
                                here) */
    int64_t now_us;
    void *holder;      /* for resume(): valid while this request is on hold */
    uint64_t *ticket;  /* the policy's own word for this request; 0 at first */
    void **attachment; /* the policy's own pointer for this client; NULL at first, on_client_close() gets it back */
};

/* What is known of a whole request, of a command with one key, at first sight: what several gates would have to find
 * out of it, each for itself. */
struct policy_glance {
    const struct command *command;
    struct slice key;
    uint64_t bytes;   /* of the request on the wire */
    void *attachment; /* the policy's own pointer for this client; NULL: there is none yet */
};

/*
 * WHOLE: a partial request cannot be judged by its beginning. It is kept and asked about again when twice as
 * much of it has been announced, when its last argument has, and at the latest when it is whole. Nothing of it reaches
 * Redis before, and up to max_request of it is held in memory: decide as soon as it can be decided.
 */
enum policy_verdict { POLICY_PASS, POLICY_ADMIT, POLICY_REPLY, POLICY_HOLD, POLICY_WHOLE, POLICY_CLOSE };

struct policy_decision {
    char text[POLICY_TEXT_MAX]; /* REPLY: a whole RESP reply that is valid in RESP2 and RESP3; CLOSE: the reason */
    size_t length;
    int64_t hold_until_us; /* HOLD: when to ask again at the latest */
    /* HOLD: a client that ends its stream meanwhile is closed, and what it waits for is not done. false, as it is
     * given: that is done for nobody, as is what Redis has received. */
    bool drops_who_leaves;
    /* The rule that refuses, of the policy's own memory. NULL, as it is given: a REPLY is an answer and no refusal, and
     * a CLOSE no rule's doing. */
    const char *rule;
};

enum policy_outcome {
    POLICY_OUTCOME_REPLY,    /* Redis answered */
    POLICY_OUTCOME_LOCAL,    /* another policy or Headgate itself answered */
    POLICY_OUTCOME_LOST,     /* the connection to Redis broke, or could not be made */
    POLICY_OUTCOME_OWNERLESS /* the client went away first, or asked for no reply */
};

struct policy_reply {
    const struct policy_client *client; /* NULL when it is gone */
    const struct command *command;
    enum policy_outcome outcome;
    struct slice head;   /* the first bytes of the reply, up to RESP_HEAD_KEPT; empty unless Redis answered */
    uint64_t length;     /* bytes of the reply */
    int64_t received_us; /* of the request */
    int64_t now_us;
    uint64_t ticket;
};

/* What a gate is told of a request that it passed, before its reply. */
enum policy_step_kind {
    POLICY_STEP_HELD,     /* by another gate */
    POLICY_STEP_ANSWERED, /* by another gate, as by REPLY */
    POLICY_STEP_CLOSED,   /* with its client, by another gate */
    POLICY_STEP_SENT      /* on a connection to Redis */
};

/* Valid within the call. */
struct policy_step {
    enum policy_step_kind kind;
    uint64_t ticket;
    const char *policy; /* whose gate; NULL when it was sent */
    const char *rule;   /* … which refuses by that; NULL: none */
    uint64_t lane;      /* the number of the connection, as LANES shows it; 0 until it was sent */
    int64_t now_us;
};

/* Tags of requests that are not measured, and of commands whose requests measure() tells apart. */
#define POLICY_TAG_NONE UINT32_C(0)
#define POLICY_TAG_ASK UINT32_MAX
/* How much of a request's beginning a sample shows. Bytes. */
#define POLICY_HEAD_MAX ((size_t)256)
/* One of so many requests, in the mean, is shown to on_spot(). */
#define POLICY_SPOT_INTERVAL 64

/* Of which requests a policy that measures wants to hear one by one. */
struct policy_attention {
    int64_t us;     /* those that took so long, and … */
    uint64_t bytes; /* … those of which the request or the reply has so many bytes */
    bool heads;     /* with their first bytes */
};

/*
 * A request that was measured, or several of one client that were, under one tag, of which all times are the same.
 * Times are monotonic, in µs.
 *
 *   received ──(policies, lanes)──► sent ──(Redis)──► answered ──(earlier replies, the socket)──► written
 */
struct policy_sample {
    const struct policy_client *client; /* in on_written() only */
    uint32_t tag;
    uint32_t count;      /* of requests; the bytes are the sums of theirs */
    uint32_t errors;     /* those that were answered by an error, or not at all */
    bool is_local;       /* answered by Headgate, and never sent */
    int64_t received_us; /* when the loop iteration began in which its last byte was read */
    int64_t sent_us;     /* it was given to the connection to Redis; 0 if it is local */
    int64_t answered_us; /* the last byte of its reply was read, or the reply was made */
    int64_t written_us;  /* … and written to the client; 0 in on_sample(), and if it never was */
    uint64_t request_bytes;
    uint64_t reply_bytes;
    struct slice head; /* its first bytes in multibulk form, up to POLICY_HEAD_MAX; empty unless they are wanted */
};

/* Buckets of a distribution: the first has what took 1 µs or less, and bucket i what took more than
 * 2^((i - 1) / POLICY_DURATION_STEPS) and at most 2^(i / POLICY_DURATION_STEPS) µs. */
#define POLICY_DURATION_STEPS 16
#define POLICY_DURATION_BUCKETS 593

/* How long the requests of one operation have taken since the start. Valid within the call. */
struct policy_durations {
    uint32_t number;       /* of the operation, from 0: the same until the end, and lower ones came to be before */
    const char *operation; /* its name: printable ASCII without blanks, quotes and backslashes, and the same until the
                            * end */
    uint64_t count;
    uint64_t errors; /* … of which were answered by an error, or not at all */
    uint64_t sum_us;
    uint64_t min_us;
    uint64_t max_us;
    uint64_t request_bytes;
    uint64_t reply_bytes;
    const uint64_t *buckets; /* POLICY_DURATION_BUCKETS */
};

typedef void policy_durations_told(void *context, const struct policy_durations *durations);

/* Whether the server has a command; UNKNOWN until it was asked, or if it does not tell. */
enum policy_server_has { POLICY_SERVER_UNKNOWN, POLICY_SERVER_HAS, POLICY_SERVER_LACKS };

/* What becomes of a request that all policies admitted. */
enum policy_translation {
    POLICY_AS_IT_IS,
    POLICY_TRANSLATED, /* another one is sent in its place */
    POLICY_ANSWERED    /* it is answered, as by POLICY_REPLY */
};

/* Elements of a script's reply, at most. */
#define POLICY_SCRIPT_ELEMENTS_MAX 16384

/* How a script ended. Valid within the call. A reply that is no array is one element; an array within the array is an
 * error. */
struct policy_script_reply {
    const char *error;         /* NULL: it succeeded; else what Redis said, or why it said nothing */
    const int64_t *integers;   /* the reply: an integer, or an array of them; 0 for what is none */
    const struct slice *texts; /* the texts among them; data is NULL for what is none. NULL: there are none at all */
    size_t count;
    int64_t since_us; /* since when the connection had been there that it came over; void with replicas */
};

typedef void policy_script_done(void *context, const struct policy_script_reply *reply);

#define POLICY_SCRIPT_ARGUMENTS_MAX 64

/* A Redis server that a policy has for itself, beside that of the clients. */
struct policy_server;

struct policy_server_settings {
    const struct conf_address *address; /* NULL: there is no such server */
    const char *user;                   /* "" for the default user */
    const char *password;               /* "" for none */
    struct tls_context *tls;            /* of the rule that names it; NULL: without TLS */
};

/* A script that replies with integers and texts: one of lua/. */
struct policy_script {
    const struct script *script;
    bool is_sent_whole;            /* by EVAL: never sent again behind others, as after NOSCRIPT */
    const struct slice *arguments; /* the keys, then the rest; needed within the call only */
    size_t argument_count;         /* up to POLICY_SCRIPT_ARGUMENTS_MAX */
    size_t key_count;
    int64_t database;             /* in which it runs */
    struct policy_server *server; /* on which; NULL: on the Redis of the clients */
    policy_script_done *done;
    void *context; /* of done */
};

/* How an admin query on the admin port is answered: by the text that was written, by OK, or by the one line that was
 * written, which is an error. */
enum policy_answer { POLICY_ANSWER_TEXT, POLICY_ANSWER_OK, POLICY_ANSWER_ERROR };

/* How long one that has to be waited for may take. ms. */
#define POLICY_ANSWER_PATIENCE_MS 10000

/* An admin query on the admin port that waits for its answer. */
struct admin_query;

/* What happens that operators want to hear of. Policies tell of leases, Headgate of the rest. */
enum policy_event_kind {
    POLICY_REFUSED,       /* a policy refused a request, or had its client closed */
    POLICY_LEASE_TAKEN,   /* a lock or a permit is held */
    POLICY_LEASE_LOST,    /* … and is not held any more, though nobody released it */
    POLICY_UPSTREAM_LOST, /* a connection to Redis broke; or, once in each outage, none can be made */
    POLICY_REQUEST_LOST,  /* a request was under way on a connection that broke */
    POLICY_EVENTS
};

/* What happened: "source:rule what" for a person, such as "limit:checkout get". Of few different texts, so that they
 * can be counted, and none that a client can make up; they may have any bytes in them, and any length. Valid within the
 * call. */
struct policy_event {
    enum policy_event_kind kind;
    uint64_t count;     /* how often, 1 or more */
    const char *source; /* whose doing it was: a section of the ini file, or the address of Redis */
    const char *rule;   /* of that section; NULL: none */
    const char *what;   /* the command, the reason, … */
};

/* What a policy may ask of the worker it runs on. */
struct policy_host {
    /* Asks again about a request that is on hold, at the end of this loop iteration. holder: as in struct
     * policy_request. */
    void (*resume)(void *context, void *holder);
    /* Runs a script in Redis; done is called once, possibly before this returns, but never after stop(). */
    void (*run_script)(void *context, const struct policy_script *script);
    /*
     * Gives the instance a server of its own in place of the one that it has (NULL: none): that same one if the
     * settings are its own, or else another, or NULL if there is to be none. No script may be run on the one before any
     * more; those under way on it have some seconds to end. The settings are needed within the call only, and the
     * server is gone when stop() has returned. It is connected to while there are scripts for it; what is wrong with
     * it, clients do not notice, and scripts are told as their error.
     */
    struct policy_server *(*change_server)(void *context, struct policy_server *server,
                                           const struct policy_server_settings *settings);
    /* Answers an admin query that this instance's ask() was given: text is what run() would have written, and is needed
     * within the call only. At most once for each of them, and never after stop(): the admin query is gone with its
     * answer. */
    void (*answer)(void *context, struct admin_query *admin_query, enum policy_answer kind, struct slice text);
    /* Tells who is at the other end of a client's connection: the user, which takes some µs the first time, and if it
     * is wanted the process, which takes more. TOLD: as well as it can be told, which is kept for the next time. */
    enum policy_peer_search (*find_peer)(void *context, void *connection, bool process, struct policy_peer *peer);
    /* The process that was found has ended, and the connection is there yet: who has it now is to be looked for anew,
     * by find_peer(). */
    void (*forget_peer)(void *context, void *connection);
    /* Whether the process of a peer that has a pid is still there. Some µs. */
    bool (*peer_lives)(void *context, const struct policy_peer *peer);
    /* Looks at all sockets of that process, so that peer_has() tells of connections whether it is at their other end.
     * False: that takes longer, or was done too often lately; again at a tick. */
    bool (*look_at_peer)(void *context, const struct policy_peer *peer);
    /* LATER: of a connection that was made after the look began. The next look tells. */
    enum policy_peer_search (*peer_has)(void *context, void *connection, bool *has);
    /* Has this worker's policies asked anew which commands they want, as after a reload: for on_tick(), on_drain() and
     * verbs only, streams included. */
    void (*reconsider)(void *context);
    /* Logs a trouble of a rule of this policy, in one line. */
    void (*warn)(void *context, const char *rule, const char *text);
    /* Logs what is no trouble, but worth knowing. */
    void (*inform)(void *context, const char *rule, const char *text);
    /* Tells the policies that listen what happened; see policy_tell(). */
    void (*happened)(void *context, const struct policy_event *event);
    /* Whether any policy listens; changes with a reload only. */
    bool listens;
    /* The time of this loop iteration, as in struct policy_request. */
    int64_t (*now_us)(void *context);
    /* The time by the calendar, since 1970; it may jump. */
    int64_t (*wall_us)(void *context);
    /* The same by Redis' clock, as far as that is known. */
    int64_t (*redis_us)(void *context);
    void *context;
    size_t worker;         /* the number of this one, from 0 */
    const char *host_name; /* of this sidecar among others; the same until the end */
    /* Of the [server:NAME] that the instance is for, of those of this process; "" for that of [headgate]. A policy need
     * not know of servers: each has instances of its own. But what they write to one Redis goes to keys of their own.
     */
    const char *server_name;
    bool is_cluster; /* its upstream is a Redis Cluster: the keys of a script have to be of one slot */
};

struct policy_counter {
    const char *name; /* in STATS */
    enum stats_kind kind;
    const char *help;
};

/* What a verb does beyond answering; those that change something are obeyed only for who may (see docs/operations.md).
 */
enum policy_verb_effect {
    POLICY_VERB_READS,
    POLICY_VERB_CHANGES,
    POLICY_VERB_CHANGES_ON_RESET /* if its second word is RESET */
};

/* What a stream tells beside its lines. */
struct policy_stream_told {
    uint64_t lost; /* lines that had no room */
    int64_t passed_us;
    int64_t unseen_us; /* of these, those in which it was not looked at what happened, to spare clients */
};

/*
 * An answer that goes on for a while: each worker's instance opens a stream of its own, is asked some times a second
 * for what has come since, and closes it. Text is in lines. What nobody fetches is for the instance to bound.
 */
struct policy_stream {
    bool gathers;   /* all lines are one answer, at the end; false: each is told as it comes */
    uint64_t lines; /* that are told at most, unless open() says otherwise */
    /* NULL: it cannot be opened, and why has one line. Sets *lines if who asks wants other ones. */
    void *(*open)(void *instance, size_t count, const struct slice *arguments, uint64_t *lines, FILE *why);
    /* Writes what has come, and adds to *told what it has to tell since the last time. text is NULL if nobody takes the
     * lines: then they are lost, too. False: nothing more will come. */
    bool (*read)(void *instance, void *stream, FILE *text, struct policy_stream_told *told);
    /* Not called if the instance is stopped first. */
    void (*close)(void *instance, void *stream);
};

/* Something to ask or tell the policy on the admin port. */
struct policy_verb {
    const char *name;   /* in capitals; not one of Headgate's own */
    size_t least, most; /* arguments, with the verb */
    const char *usage;
    const char *help;
    const char *example; /* a request that is sound */
    enum policy_verb_effect effect;
    /* Called on the thread of one worker; the answer is written to answer. */
    enum policy_answer (*run)(void *instance, size_t count, const struct slice *arguments, FILE *answer);
    /* In place of run, where the answer has to be waited for: host->answer() is called for the admin query, within this
     * call or later. The arguments are needed within the call only. Who asked is told of an error when there is no
     * answer in POLICY_ANSWER_PATIENCE_MS, or before the policy is stopped; an answer that comes too late is
     * dropped. */
    void (*ask)(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments);
    /* In place of both: asked of all workers. */
    const struct policy_stream *stream;
};

/* What an instance is started with. */
struct policy_start {
    const struct policy_host *host; /* outlives the instance */
    void *shared;                   /* what share() gave; NULL without it */
    /* The rules of the whole file, of which those of the policy's own sections concern it; valid within the call. */
    const struct conf_rule *rules;
    /* One for each of the policy's counters, in the order of its table; this worker's own. */
    _Atomic uint64_t *counters;
};

/*
 * A gate decides about the requests of the commands that it wants.
 *
 *   on_request ─► PASS  ─► … Redis … ─► on_reply
 *              ─► ADMIT ─► … Redis … (no on_reply for this gate: it has seen what it wanted to see)
 *              ─► REPLY (the answer keeps its place among the client's replies; no on_reply for this gate)
 *              ─► HOLD  ─► on_request again at hold_until_us or after resume(), with the same ticket ─► …
 *              ─► WHOLE (of a partial request) ─► on_request again when more of it is known, with the same ticket ─► …
 *              ─► CLOSE (the client is closed; no on_reply for this gate)
 *
 * Every request that a gate passed, or held or wanted whole and was not asked about again, gets exactly one on_reply.
 * After a reload a request that is held, or comes whole, is put anew to gates without on_reply that let it through:
 * with the same ticket, so that nothing is counted twice. Those with on_reply have decided.
 */
struct policy_gate {
    /* Whether it wants to be asked about a command (NULL: one that Headgate does not know), under the rules that the
     * policy has. Asked for every command after start and after reload, and never for a request. */
    bool (*wants)(void *instance, const struct command *command);
    /* Asked about each request of such a command, once all gates before this one have let it through. The decision is
     * the caller's, to be filled in as the verdict needs it. */
    enum policy_verdict (*on_request)(void *instance, const struct policy_request *request,
                                      struct policy_decision *decision);
    /* The rest may be NULL. */
    /* Told once of each request that it is owed for. Without it, PASS is the same as ADMIT. */
    void (*on_reply)(void *instance, const struct policy_reply *reply);
    /*
     * For pipelines: requests of commands for which group() gives the same number, other than 0, differ in nothing that
     * the gate looks at. on_batch() is asked about so many of them in a row, of which the request is the first, and
     * says how many of them it admits, from the first on. If there are others, *decision may say how all of these are
     * answered, as by REPLY; if it is left as it is, with a length of 0, on_request() is asked about each of them.
     * Both hooks are there, or neither.
     */
    uint32_t (*group)(void *instance, const struct command *command);
    uint32_t (*on_batch)(void *instance, const struct policy_request *request, uint32_t count,
                         struct policy_decision *decision);
    /*
     * For gates that look at keys, of which most are not theirs: whether the gate has anything to do with a request of
     * a command that it wants. False is the same as ADMIT from on_request(), and is to be without any effect. It is
     * asked, before the other gates are, about whole requests of commands with one key outside of MULTI; all gates that
     * look at single requests have to have it for that to be so. It is to be quick.
     */
    bool (*concerns)(void *instance, const struct policy_glance *glance);
    /* Told of the steps of each request that it passed, until on_reply. Of one that goes to several nodes of a cluster
     * it is not told that it was sent. */
    void (*on_step)(void *instance, const struct policy_step *step);
    /* It does not go by who a client is: nothing has to be known of that on its account. */
    bool ignores_clients;
    bool is_asked_again; /* whatever it said, when another one has held the request */
};

/* An observer sees, and decides nothing. What it does of these two it brings whole, or leaves out. */
struct policy_observer {
    /*
     * Measuring, which one policy of a build may do. tag() says under which tag the requests of a command (NULL: one
     * that Headgate does not know) are measured, and is asked for every command after start and after reload;
     * POLICY_TAG_ASK has measure() asked for each request, and POLICY_TAG_NONE leaves them out. Each request with a tag
     * is in one on_sample(), unless it has no reply; true asks for on_written() when the reply has been written, with
     * the same sample, if it is of one request. attends() is asked after start and reload; without it, requests are
     * told of together wherever they can be. on_spot() is shown some of the requests whole, or their beginning if they
     * are partial: chosen by chance, one of POLICY_SPOT_INTERVAL in the mean. tag and on_sample are needed.
     */
    uint32_t (*tag)(void *instance, const struct command *command);
    uint32_t (*measure)(void *instance, const struct policy_request *request);
    struct policy_attention (*attends)(void *instance);
    bool (*on_sample)(void *instance, const struct policy_sample *sample);
    void (*on_written)(void *instance, const struct policy_sample *sample);
    void (*on_spot)(void *instance, const struct policy_request *request);
    /*
     * For who measures: tells of the operations from *at on (0 at first), some of them in each call; true: there are
     * more, from *at on. To have what all workers measured each is asked in turn, and only the last one with told: what
     * the others have goes where it finds it, and they are asked with NULL.
     */
    bool (*tell_durations)(void *instance, uint32_t *at, policy_durations_told *told, void *context);
    /*
     * What happened on this worker, as policies and Headgate tell it: in the midst of what they do, and perhaps under
     * locks of theirs, a million times a second if a client is refused so often. So it is to be quick, and to call
     * nobody. listens() says whether it is wanted, and is asked after start and reload.
     */
    bool (*listens)(void *instance);
    void (*on_event)(void *instance, const struct policy_event *event);
};

/* A translator says something else to Redis in place of commands that servers may lack. */
struct policy_translator {
    /* Whether it does so for a command, of which one policy alone may say so. Asked as wants() is. */
    bool (*translates)(void *instance, const struct command *command);
    /* Asked about each request of such a command once all gates have let it through, and as often as it is looked at.
     * TRANSLATED: *frame is set to a whole multibulk command of the translator's own memory, valid until the next call.
     * ANSWERED: the decision has the reply. */
    enum policy_translation (*translate)(void *instance, const struct policy_request *request,
                                         enum policy_server_has server, struct slice *frame,
                                         struct policy_decision *decision);
};

/* A router says who answers a part of the requests that only read, where replicas are known. */
struct policy_router {
    /* Whether it may say so of a request of a command (NULL: one that Headgate does not know). Asked as wants() is. */
    bool (*routes)(void *instance, const struct command *command);
    /* Asked about whole requests of such commands once all gates have let them through, as often as they are looked at.
     * True: *reads says who; the routers behind this one are not asked. */
    bool (*reads)(void *instance, const struct policy_request *request, enum conf_reads *reads);
};

#define POLICY_RULE_COUNTERS_MAX 8

/* What a rule has counted; values are as many as the policy has rule_counters. Needed within the call only. */
typedef void policy_rule_told(void *context, const char *rule, const uint64_t *values);

/* The longest text that a policy tells another process at once, or hears of it. Bytes. */
#define POLICY_TWIN_TEXT_MAX ((size_t)64 * 1024)

/*
 * While an upgrade lasts two processes serve: a new one takes over from another, which keeps the clients that it has
 * until they go. What the policy says to its like in the other process, in lines of its own that may be of another
 * version: what it does not understand, it passes over. Both are run on one worker, and are no verbs of the admin port.
 */
struct policy_twin {
    /* TELL ALL cursor: what the new process has to know when it begins. TELL NEWS cursor: what is new since the last
     * time; TELL BESIDE, to the new process in place of NEWS where is_for_successor: there is another one, and nothing
     * is to be told. cursor: a number, 0 at first. Writes a line with the number to go on with, 0 if that was all, then
     * lines, up to POLICY_TWIN_TEXT_MAX in all. */
    struct policy_verb tell;
    /* HEAR text: lines without the first one. */
    struct policy_verb hear;
    bool is_for_successor; /* news is told by the old process to the new one only; else by both to each other */
};

struct policy {
    const char *name;
    /* What it does with requests; NULL for what it does not. They live as long as the policy. */
    const struct policy_gate *gate;
    const struct policy_observer *observer;
    const struct policy_translator *translator;
    const struct policy_router *router;
    /* Its sections of the ini file, up to a NULL; NULL for none. */
    const struct conf_section *const *sections;
    /* Its counters, shown by STATS as the section counter_section. */
    const char *counter_section;
    const struct policy_counter *counters;
    size_t counter_count;
    /* What each of its rules counts, for metrics by rule, up to POLICY_RULE_COUNTERS_MAX; 0 for nothing. */
    const struct policy_counter *rule_counters;
    size_t rule_counter_count;
    /* Tells of each rule what the instances of all workers have counted, by what they share; on the main thread. One of
     * a name that comes twice is to be added up. Needed with rule_counters. */
    void (*tell_rules)(void *shared, policy_rule_told *told, void *context);
    /* Its verbs, which HELP lists behind Headgate's own. */
    const struct policy_verb *verbs;
    size_t verb_count;
    /* What the instances of all workers share, made before the first of them and given back after the last; both NULL
     * for nothing. threads: how many workers there are. Instances lock what they find in it, unless there is but one
     * worker. Called on the main thread. NULL when memory is short. */
    void *(*share)(size_t threads);
    void (*unshare)(void *shared);
    /* The instance of a worker, or NULL when memory is short. Called before the worker serves anybody. */
    void *(*start)(const struct policy_start *start);
    /* The rest may be NULL. */
    /* Ends the instance: its clients are gone, its scripts have been answered, and no hook is called any more. */
    void (*stop)(void *instance);
    /* Takes over other rules, as those of struct policy_start. The state of rules that stay as they are is kept.
     * Requests that are held are asked about again, or ended, as if nothing had happened. False when memory is short:
     * the instance goes on with the rules it had. */
    bool (*reload)(void *instance, const struct conf_rule *rules);
    /* Who a client is: when it has come, when its user or name may have changed, and for each client after reload().
     * attachment: the policy's own pointer for this client, as in struct policy_request. */
    void (*on_client)(void *instance, const struct policy_client *client, void **attachment);
    /* attachment: what the policy left with the client, if anything, and is to be given back now. */
    void (*on_client_close)(void *instance, const struct policy_client *client, void *attachment);
    void (*on_tick)(void *instance, int64_t now_us); /* ten times a second */
    /* The process is about to end. Called before each on_tick() from then on, with the number of clients that this
     * worker still has: true when nothing is left to do first. The wait for it is bounded. */
    bool (*on_drain)(void *instance, size_t clients);
    void (*on_stats)(void *instance); /* STATS was asked for: gauges are to be up to date */
    const struct policy_twin *twin;
};

/* Whether a script succeeded and gave that many elements or more, none of which is a text. */
static inline bool policy_script_gave_integers(const struct policy_script_reply *reply, size_t least)
{
    bool only_integers = reply->error == NULL && reply->count >= least;

    for (size_t i = 0; only_integers && i < reply->count; i++) {
        only_integers = reply->texts == NULL || reply->texts[i].data == NULL;
    }
    return only_integers;
}

/* Tells what happened, which costs a branch when nobody listens. Refusals are told by the chain. */
static inline void policy_tell(const struct policy_host *host, const struct policy_event *event)
{
    if (host->listens) {
        host->happened(host->context, event);
    }
}

/* Adds to a counter that only this worker's thread writes. */
static inline void policy_count(_Atomic uint64_t *counter, uint64_t amount)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + amount, memory_order_relaxed);
}

/* All policies of this build, in the order in which they are asked; ends with NULL. */
extern const struct policy *const policies[];

/* The sections of all of these, which end with NULL, up to a NULL. */
static inline void policy_list_sections(const struct policy *const *list,
                                        const struct conf_section *sections[POLICY_SECTIONS_MAX + 1])
{
    size_t count = 0;

    for (; *list != NULL; list++) {
        for (const struct conf_section *const *own = (*list)->sections; own != NULL && *own != NULL; own++) {
            assert(count < POLICY_SECTIONS_MAX);
            sections[count++] = *own;
        }
    }
    sections[count] = NULL;
}

#endif
