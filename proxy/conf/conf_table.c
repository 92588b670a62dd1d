/*
 * The option table: the one place where an option is named, bounded, defaulted and explained. From it come parsing, the
 * printed configuration, conf/headgate.ini and docs/configuration.md.
 */
#include "conf/conf_table.h"
#include "base/log.h"
#include "conf/conf.h"
#include "conf/conf_listener.h"
#include "tls/tls_context.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define KB INT64_C(1024)
#define MB (1024 * KB)
#define GB (1024 * MB)
#define SECOND INT64_C(1000)
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)

#define STRING_MAX 1024
/* Of users and groups of the machine. */
#define NAME_MAX_BYTES 64

#define FIELD(field) .name = #field, .offset = offsetof(struct conf, field)

/* What passwords of the admin port stand by, and what is said of TLS to all who connect. */
#define WITH_ADMIN "admin http"
#define WITH_CLIENTS "listen* admin*"
/* Where they are said, and who uses them without giving any. */
#define WITH_CREDENTIALS "upstream listen*"

static const char *const pool_words[] = {"shared", "session", NULL};
static const char *const cross_slot_words[] = {"refuse", "split", NULL};
static const char *const maintenance_words[] = {"no", "reconnect", "address", NULL};
static const char *const reads_words[] = {"master", "prefer-replica", "replica", NULL};
static const char *const changes_words[] = {"same-user", "anyone", NULL};
static const char *const certificate_words[] = {"none", "optional", "required", NULL};
static const char *const log_format_words[] = {"text", "json", NULL};
static const char *const log_level_words[] = {"debug", "info", "warning", "error", NULL};

static_assert(CONF_POOL_SHARED == 0 && CONF_POOL_SESSION == 1, "pool_words are in the order of enum conf_pool");
static_assert(CONF_CROSS_SLOT_REFUSE == 0 && CONF_CROSS_SLOT_SPLIT == 1,
              "cross_slot_words are in the order of enum conf_cross_slot");
static_assert(CONF_MAINTENANCE_NO == 0 && CONF_MAINTENANCE_RECONNECT == 1 && CONF_MAINTENANCE_ADDRESS == 2,
              "maintenance_words are in the order of enum conf_maintenance_notifications");
static_assert(CONF_READS_MASTER == 0 && CONF_READS_PREFER_REPLICA == 1 && CONF_READS_REPLICA == 2,
              "reads_words are in the order of enum conf_reads");
static_assert(CONF_CHANGES_SAME_USER == 0 && CONF_CHANGES_ANYONE == 1,
              "changes_words are in the order of enum conf_changes");
static_assert(TLS_CLIENT_CERTIFICATES_NONE == 0 && TLS_CLIENT_CERTIFICATES_OPTIONAL == 1 &&
                  TLS_CLIENT_CERTIFICATES_REQUIRED == 2,
              "certificate_words are in the order of enum tls_client_certificates");
static_assert(LOG_LEVEL_DEBUG == 0 && LOG_LEVEL_INFO == 1 && LOG_LEVEL_WARNING == 2 && LOG_LEVEL_ERROR == 3,
              "log_level_words are in the order of enum log_level");
static_assert(LOG_FORMAT_TEXT == 0 && LOG_FORMAT_JSON == 1, "log_format_words are in the order of enum log_format");

const struct conf_option conf_options[] = {
    {FIELD(listen), .reach = CONF_REACH_ADDRESS, .type = CONF_ADDRESSES, .min = 1, .max = CONF_ADDRESSES_MAX,
     .initial = "127.0.0.1:6380",
     .help = "Where clients connect: point applications here in place of Redis.\n"
             "A name is all its addresses; 0.0.0.0:6380 every IPv4, [::]:6380 every IPv6."},
    CONF_LISTENER_OPTIONS(struct conf, listener_terms),
    {FIELD(admin), .reach = CONF_REACH_PROCESS, .type = CONF_ADDRESSES, .min = 0, .max = CONF_ADDRESSES_MAX,
     .zero = "no admin port", .initial = "127.0.0.1:6390",
     .help = "Where operators connect, with any Redis client: redis-cli -p 6390 STATS.\n"
             "Set admin_password before opening it beyond this machine."},
    {FIELD(admin_password), .reach = CONF_REACH_PROCESS, .type = CONF_STRING, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = WITH_ADMIN, .is_guarded = true, .secret = true,
     .help = "What AUTH on the admin port must give. Empty: no password is asked for."},
    {FIELD(admin_password_file), .reach = CONF_REACH_PROCESS, .type = CONF_FILE, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = WITH_ADMIN, .secret = true, .fills = "admin_password",
     .help = "The file that holds it, alone on its line, in place of admin_password."},
    {FIELD(admin_read_password), .reach = CONF_REACH_PROCESS, .type = CONF_STRING, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = WITH_ADMIN, .is_guarded = true, .secret = true,
     .help =
         "What who may only look gives in its place: to AUTH on the admin port, and by HTTP. Empty: there is none.\n"
         "Needs admin_password."},
    {FIELD(admin_read_password_file), .reach = CONF_REACH_PROCESS, .type = CONF_FILE, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = WITH_ADMIN, .secret = true, .fills = "admin_read_password",
     .help = "The file that holds it, alone on its line, in place of admin_read_password."},
    {FIELD(admin_changes), .reach = CONF_REACH_PROCESS, .type = CONF_WORD, .words = changes_words,
     .initial = "same-user", .reloadable = true, .waits_with = WITH_ADMIN, .is_guarded = true,
     .help = "Who is let in over TCP while there is no admin_password. same-user: processes on this machine of the\n"
             "user that Headgate runs as, and of root; who is elsewhere may look, and change nothing. anyone: whoever\n"
             "reaches the admin port. A Unix socket is open to whom its mode lets in."},
    {FIELD(http), .reach = CONF_REACH_PROCESS, .type = CONF_ADDRESSES, .min = 0, .max = CONF_ADDRESSES_MAX,
     .zero = "no HTTP", .initial = "",
     .help = "Where metrics, probes and a page for a browser are served by HTTP, to look at and nothing else:\n"
             "127.0.0.1:6391, say. Asks for admin_password if there is one, and has to have one beyond this machine."},
    {FIELD(http_names), .reach = CONF_REACH_PROCESS, .type = CONF_STRING, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = "http", .is_guarded = true,
     .help = "The names of hosts by which it may be asked for, beside localhost, numbers and the name of this\n"
             "machine: any other is refused, as it may be the trick of a page in somebody's browser."},
    {FIELD(upstream), .reach = CONF_REACH_ADDRESS, .type = CONF_ADDRESS, .initial = "127.0.0.1:6379",
     .takes_topology = true,
     .help =
         "The Redis server that all requests go to. sentinel://host:26379,host:26379/NAME: the master of that name,\n"
         "which these sentinels know, wherever it goes; sentinels:// with TLS. docs/topology.md says more."},
    {FIELD(upstream_user), .reach = CONF_REACH_ADDRESS, .type = CONF_STRING, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = WITH_CREDENTIALS,
     .help = "The ACL user as which Headgate authenticates on behalf of clients that do not do so themselves.\n"
             "Empty: the default user. Needs upstream_password."},
    {FIELD(upstream_password), .reach = CONF_REACH_ADDRESS, .type = CONF_STRING, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = WITH_CREDENTIALS, .secret = true,
     .help = "The password for it. Empty: Headgate does not authenticate, and clients do so themselves if Redis asks."},
    {FIELD(upstream_password_file), .reach = CONF_REACH_ADDRESS, .type = CONF_FILE, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = WITH_CREDENTIALS, .secret = true, .fills = "upstream_password",
     .help = "The file that holds it, alone on its line, in place of upstream_password."},
    {FIELD(sentinel_user), .reach = CONF_REACH_ADDRESS, .type = CONF_STRING, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = "upstream",
     .help =
         "upstream = sentinel://…: the ACL user as which Headgate authenticates to the sentinels. Empty: the default\n"
         "user. Needs sentinel_password."},
    {FIELD(sentinel_password), .reach = CONF_REACH_ADDRESS, .type = CONF_STRING, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = "upstream", .secret = true,
     .help = "The password for it. Empty: Headgate does not authenticate to sentinels."},
    {FIELD(sentinel_password_file), .reach = CONF_REACH_ADDRESS, .type = CONF_FILE, .max = STRING_MAX, .initial = "",
     .reloadable = true, .waits_with = "upstream", .secret = true, .fills = "sentinel_password",
     .help = "The file that holds it, alone on its line, in place of sentinel_password."},
    {FIELD(sentinel_check), .type = CONF_TIME, .min = 100, .max = HOUR, .initial = "1s", .reloadable = true,
     .help =
         "How often the sentinels are asked where the master is, besides what they announce, and the master itself\n"
         "whether it still is one."},
    {FIELD(sentinel_timeout), .type = CONF_TIME, .min = 10, .max = HOUR, .initial = "1s", .reloadable = true,
     .help = "How long a sentinel, or the master when it is asked so, may take to answer before it counts as away."},
    {FIELD(access_check), .type = CONF_TIME, .min = 100, .max = DAY, .zero = "only after commands that change it",
     .initial = "5s", .reloadable = true,
     .help =
         "How often to look, by a short connection of its own, whether Redis wants a password of new clients, as that\n"
         "may be changed behind Headgate's back. Only with no upstream_password. And how long what Redis has shown of "
         "a\n"
         "user's rights holds: to CLIENT SETNAME, GETNAME and SETINFO, which Headgate then answers."},
    {FIELD(cross_slot), .type = CONF_WORD, .words = cross_slot_words, .initial = "refuse", .reloadable = true,
     .help = "Before a cluster: what becomes of a request with keys in several slots.\n"
             "refuse: Redis' CROSSSLOT. split: MGET, MSET, DEL, UNLINK, EXISTS and TOUCH are taken apart, one request\n"
             "for each slot, and answered as by one server; they are not atomic then."},
    {FIELD(reads), .type = CONF_WORD, .words = reads_words, .initial = "master", .reloadable = true,
     .waits_with = "upstream pool",
     .help = "Behind sentinels, or before a cluster: who answers commands that only read. prefer-replica: a replica, "
             "or the master while "
             "none is\n"
             "fit. replica: a replica, and requests wait while none is. A replica may be behind by max_lag: what was "
             "written\n"
             "may not be there yet. Needs pool = shared. docs/topology.md says which commands."},
    {FIELD(max_lag), .type = CONF_TIME, .min = 500, .max = HOUR, .initial = "10s", .reloadable = true,
     .help = "A replica that is further behind its master than this is not read from, nor is one that has lost it."},
    {FIELD(read_own_writes), .type = CONF_TIME, .min = 1, .max = HOUR, .zero = "as soon as the write is answered",
     .initial = "1s", .reloadable = true,
     .help = "For so long after a write its client reads from the master, so that it finds there what it wrote."},
    {FIELD(pool), .type = CONF_WORD, .words = pool_words, .initial = "shared",
     .help = "shared: clients share a few connections to Redis, and have one of their own while their state needs it.\n"
             "session: every client has a connection to Redis of its own for as long as it stays."},
    {FIELD(threads), .type = CONF_INTEGER, .min = 1, .max = 64, .initial = "1",
     .help = "Worker threads. Each carries its own clients and its own connections to Redis."},
    {FIELD(lanes), .type = CONF_INTEGER, .min = 1, .max = 64, .initial = "8",
     .help = "Most shared connections to Redis, for each worker and each profile (user, database and RESP version).\n"
             "More than one are opened where more than 64 KiB of requests wait for an answer."},
    {FIELD(max_clients), .type = CONF_INTEGER, .min = 1, .max = 1000000, .initial = "10000", .reloadable = true,
     .help = "Clients served at once, over all workers. One more is told so and closed, as Redis does."},
    {FIELD(backlog), .type = CONF_INTEGER, .min = 1, .max = 65535, .initial = "511",
     .help = "Connections that may wait to be accepted; the kernel's net.core.somaxconn bounds it too."},
    {FIELD(unix_socket_mode), .type = CONF_MODE, .min = 0, .max = 0777, .initial = "0700",
     .help = "Permission bits of the Unix sockets that Headgate listens on."},
    {FIELD(client_idle_timeout), .type = CONF_TIME, .min = 1, .max = 365 * DAY, .zero = "never", .initial = "0",
     .reloadable = true, .help = "A client that sends nothing and waits for nothing for so long is closed."},
    {FIELD(client_id_timeout), .type = CONF_TIME, .min = 100, .max = 365 * DAY, .zero = "for life", .initial = "60s",
     .reloadable = true,
     .help =
         "pool = shared: for so long a client that asks for CLIENT ID or CLIENT INFO keeps the connection to Redis\n"
         "that this speaks of; for life once it blocks, hears of something, or asks again later."},
    {FIELD(client_output_limit), .type = CONF_SIZE, .min = 64 * KB, .max = 1024 * GB, .zero = "no limit",
     .initial = "1gb", .reloadable = true,
     .help =
         "A client is closed when more than this is kept of replies that it has not read, or of requests behind one\n"
         "that blocks."},
    {FIELD(memory_limit), .reach = CONF_REACH_PROCESS, .type = CONF_SIZE, .min = 32 * MB, .max = 1024 * GB,
     .zero = "half of what the machine has, or the control group lets the process have", .initial = "0",
     .reloadable = true,
     .help =
         "Requests and replies that are held for all clients together take no more than this, and those of one client\n"
         "no more than a quarter. Beyond three quarters of it, clients that do not read and hold much are not read "
         "from;\n"
         "beyond all of it, or after five seconds, those for whom most is held are closed."},
    {FIELD(client_pipeline_limit), .type = CONF_INTEGER, .min = 1, .max = 65536, .initial = "1024", .reloadable = true,
     .help =
         "Requests of one client under way at once on a shared lane. A client that sends more is not read from until\n"
         "some are answered."},
    {FIELD(max_request), .type = CONF_SIZE, .min = KB, .max = 4 * GB, .initial = "512mb", .reloadable = true,
     .help = "The longest argument of a request, as proto-max-bulk-len of Redis."},
    {FIELD(cut_through), .type = CONF_SIZE, .min = 16 * KB, .max = 64 * MB, .initial = "64kb", .reloadable = true,
     .help = "A request longer than this passes through a connection of its own without being held in memory."},
    {FIELD(tcp_keepalive), .type = CONF_TIME, .min = SECOND, .max = 9 * HOUR, .zero = "off", .initial = "300s",
     .reloadable = true,
     .help = "A TCP connection that is silent for so long is probed, on both sides. In whole seconds."},
    {FIELD(tcp_user_timeout), .type = CONF_TIME, .min = 1, .max = DAY, .zero = "the kernel's default", .initial = "30s",
     .reloadable = true, .help = "A TCP connection to Redis whose data is not acknowledged for so long is given up."},
    {FIELD(client_tcp_user_timeout), .type = CONF_TIME, .min = 1, .max = DAY, .zero = "the kernel's default",
     .initial = "0", .reloadable = true,
     .help = "The same for clients. The kernel counts a client that does not read as one that does not acknowledge."},
    {FIELD(connect_timeout), .type = CONF_TIME, .min = 1, .max = HOUR, .initial = "5s", .reloadable = true,
     .help = "How long one attempt to connect to Redis may take."},
    {FIELD(reconnect_min), .type = CONF_TIME, .min = 1, .max = HOUR, .initial = "50ms", .reloadable = true,
     .help = "The pause before the first attempt to reconnect to Redis. It doubles, with jitter, at each failure."},
    {FIELD(reconnect_max), .type = CONF_TIME, .min = 1, .max = HOUR, .initial = "2s", .reloadable = true,
     .help = "The longest pause between attempts to reconnect. Not less than reconnect_min."},
    {FIELD(upstream_wait), .type = CONF_TIME, .min = 1, .max = HOUR, .zero = "fails at once", .initial = "3s",
     .reloadable = true,
     .help = "How long a request that could not be sent waits for Redis to come back before it is answered with an\n"
             "error."},
    {FIELD(upstream_wait_requests), .type = CONF_INTEGER, .min = 1, .max = 10000000, .zero = "none waits",
     .initial = "10000", .reloadable = true,
     .help = "How many requests may wait so on one worker; one more is answered with an error at once."},
    {FIELD(upstream_reply_timeout), .type = CONF_TIME, .min = 1, .max = DAY, .zero = "waits for ever", .initial = "60s",
     .reloadable = true,
     .help = "A shared connection on which Redis has owed an answer for so long is closed, and its clients with it."},
    {FIELD(auth_timeout), .type = CONF_TIME, .min = 1, .max = DAY, .zero = "waits for ever", .initial = "10s",
     .reloadable = true,
     .help = "A client is closed when Redis has not answered its AUTH, or HELLO with AUTH, for so long: some versions\n"
             "of Redis give no answer to some of those that fail."},
    {FIELD(exclusive_idle), .type = CONF_INTEGER, .min = 1, .max = 10000, .zero = "none", .initial = "64",
     .reloadable = true,
     .help = "Unused connections kept ready for clients that need one of their own, for each worker and server."},
    {FIELD(exclusive_ready), .type = CONF_INTEGER, .min = 1, .max = 64, .zero = "none", .initial = "1",
     .reloadable = true,
     .help = "How many of them are opened before they are needed, for each worker and profile with clients, so that a\n"
             "SUBSCRIBE is not overtaken by what others send behind it."},
    {FIELD(lane_idle_timeout), .type = CONF_TIME, .min = 1, .max = 365 * DAY, .zero = "never", .initial = "60s",
     .reloadable = true, .help = "A connection to Redis that nobody has used for so long is closed."},
    {FIELD(resolve_every), .type = CONF_TIME, .min = 100, .max = DAY,
     .zero = "only when connections are opened, or fail", .initial = "5s", .reloadable = true,
     .help =
         "How often the name in upstream is looked up again, and that of a server for statistics. Connections to an\n"
         "address that the name has left are replaced."},
    {FIELD(retire_timeout), .type = CONF_TIME, .min = 1, .max = DAY, .zero = "as long as they like", .initial = "60s",
     .reloadable = true,
     .help = "How long clients with a connection of their own (SUBSCRIBE, BLPOP, MULTI and the like) go on at an\n"
             "address that the name has left. Then they are closed, as if that Redis had gone."},
    {FIELD(drain_timeout), .reach = CONF_REACH_PROCESS, .type = CONF_TIME, .min = 1, .max = DAY, .zero = "ends at once",
     .initial = "10s", .reloadable = true, .help = "How long SIGTERM waits for what is under way to finish."},
    {FIELD(maintenance_notifications), .type = CONF_WORD, .words = maintenance_words, .initial = "reconnect",
     .reloadable = true,
     .help =
         "Whether clients of RESP3 that ask for it (CLIENT MAINT_NOTIFICATIONS) are told to go to the process that "
         "has\n"
         "taken over, so that they leave without an error before they are closed.\n"
         "reconnect: those that go back to where they came from (moving-endpoint-type none). address: the others, "
         "too,\n"
         "which are told the address at which they came in, or the name by which they did with TLS: only where "
         "clients\n"
         "reach Headgate by that, with nothing in between that has an address of its own. no: the feature is unknown."},
    {FIELD(upgrade_start_timeout), .reach = CONF_REACH_PROCESS, .type = CONF_TIME, .min = 100, .max = HOUR,
     .initial = "30s", .reloadable = true,
     .help =
         "How long the new process of an upgrade may take until it serves. Then it is ended, and the old one goes on."},
    {FIELD(upgrade_clients_timeout), .reach = CONF_REACH_PROCESS, .type = CONF_TIME, .min = 1, .max = 365 * DAY,
     .zero = "as long as they like", .initial = "1d", .reloadable = true,
     .help =
         "How long the old process of an upgrade goes on for the clients that it has. Those that are there yet are\n"
         "closed then, as by SIGTERM: each when it has no request under way."},
    {FIELD(tls_certificate), .type = CONF_FILE, .max = STRING_MAX, .initial = "", .reloadable = true,
     .waits_with = WITH_CLIENTS,
     .help =
         "The certificate that clients see at addresses with rediss://, in listen and admin: a file in PEM form, with\n"
         "those of its chain behind it."},
    {FIELD(tls_key), .type = CONF_FILE, .secret = true, .max = STRING_MAX, .initial = "", .reloadable = true,
     .waits_with = WITH_CLIENTS,
     .help = "The file with its private key, which wants no passphrase. Empty: it is in the same file."},
    {FIELD(tls_ca), .type = CONF_FILE, .max = STRING_MAX, .initial = "", .reloadable = true, .waits_with = WITH_CLIENTS,
     .help = "The authorities whose certificates clients may have: a file in PEM form, or a directory as of openssl "
             "rehash."},
    {FIELD(tls_crl), .type = CONF_FILE, .max = STRING_MAX, .initial = "", .reloadable = true,
     .waits_with = WITH_CLIENTS,
     .help = "What these have revoked: a file in PEM form with a list of each of them. Empty: nobody asks."},
    {FIELD(client_certificates), .type = CONF_WORD, .words = certificate_words, .initial = "none", .reloadable = true,
     .waits_with = WITH_CLIENTS,
     .help =
         "Whether clients that speak TLS are asked for a certificate. One that is given must be good in either case."},
    {FIELD(tls_protocols), .type = CONF_STRING, .min = 1, .max = STRING_MAX, .initial = "TLSv1.2 TLSv1.3",
     .reloadable = true, .waits_with = WITH_CLIENTS " upstream*",
     .help = "The versions that are spoken, to clients and to Redis: one of these, or both."},
    {FIELD(tls_ciphers), .type = CONF_STRING, .max = STRING_MAX, .initial = "", .reloadable = true,
     .waits_with = WITH_CLIENTS " upstream*",
     .help = "The ciphers of TLSv1.2, to clients and to Redis, as openssl ciphers takes them.\n"
             "Empty: ECDHE with AES-GCM or ChaCha20."},
    {FIELD(tls_ciphersuites), .type = CONF_STRING, .max = STRING_MAX, .initial = "", .reloadable = true,
     .waits_with = WITH_CLIENTS " upstream*",
     .help =
         "Those of TLSv1.3. Empty: TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384 and TLS_CHACHA20_POLY1305_SHA256."},
    {FIELD(tls_handshake_timeout), .type = CONF_TIME, .min = 100, .max = HOUR, .initial = "10s", .reloadable = true,
     .help = "A client that has not done its handshake by then is closed."},
    {FIELD(tls_handshakes), .type = CONF_INTEGER, .min = 1, .max = 10000, .zero = "as many as there are",
     .initial = "8", .reloadable = true,
     .help =
         "Steps of clients' handshakes in one loop iteration of the thread that does them, each of which takes some\n"
         "hundred µs: others wait, so that handshakes with Redis, and time-outs, do not."},
#define SERVER_TLS offsetof(struct conf, server_tls)
#include "conf/conf_server_tls.inc"
#undef SERVER_TLS
    {FIELD(host_name), .reach = CONF_REACH_PROCESS, .type = CONF_STRING, .max = CONF_HOST_NAME_MAX, .initial = "",
     .help = "The name of this sidecar among others, by which limits per host or process tell them apart.\n"
             "Empty: the machine's host name."},
    {FIELD(user), .reach = CONF_REACH_PROCESS, .type = CONF_STRING, .max = NAME_MAX_BYTES, .initial = "",
     .help = "Started as root, Headgate binds its addresses, opens log_file, and is this user from then on, for good.\n"
             "Everything that a reload reads must be readable for it. Empty: it stays who started it."},
    {FIELD(group), .reach = CONF_REACH_PROCESS, .type = CONF_STRING, .max = NAME_MAX_BYTES, .initial = "",
     .help = "The group to go with it. Empty: that of the user. Needs user."},
    {FIELD(reload_on_change), .reach = CONF_REACH_PROCESS, .type = CONF_TOGGLE, .initial = "on", .reloadable = true,
     .help =
         "Whether a change of this file, or of one that it names, is taken over as by SIGHUP, a second or two later."},
    {FIELD(pid_file), .reach = CONF_REACH_PROCESS, .type = CONF_STRING, .max = STRING_MAX, .initial = "",
     .help = "The file that holds the number of the process, from when it serves clients until it ends. Empty: none."},
    {FIELD(log_level), .reach = CONF_REACH_PROCESS, .type = CONF_WORD, .words = log_level_words, .initial = "info",
     .reloadable = true, .help = "The least important lines that are logged."},
    {FIELD(log_format), .reach = CONF_REACH_PROCESS, .type = CONF_WORD, .words = log_format_words, .initial = "text",
     .reloadable = true,
     .help = "What lines look like: text for people, or each line a JSON object with time, level, module and message."},
    {FIELD(log_file), .reach = CONF_REACH_PROCESS, .type = CONF_STRING, .max = STRING_MAX, .initial = "",
     .reloadable = true, .is_guarded = true,
     .help = "The file that log lines are appended to; SIGHUP and SIGUSR1 open it anew. syslog: the system's log.\n"
             "Empty: standard error."},
};

const size_t conf_option_count = sizeof conf_options / sizeof conf_options[0];

const struct conf_section conf_section_headgate = {
    .name = CONF_SECTION,
    .options = conf_options,
    .option_count = sizeof conf_options / sizeof conf_options[0],
    .values_size = sizeof(struct conf),
};

const struct conf_section conf_section_server = {
    .name = "server",
    .has_rules = true,
    .options = conf_options,
    .option_count = sizeof conf_options / sizeof conf_options[0],
    .values_size = sizeof(struct conf),
    .help = "A server beside others in one process: a Redis, with addresses, connections, threads and options of its\n"
            "own. listen and upstream must be said. With such a section [headgate] is a server itself only if it says\n"
            "listen or upstream; its name is then default.",
};

const struct conf_option *conf_section_option(const struct conf_section *section, const char *name)
{
    for (size_t i = 0; i < section->option_count; i++) {
        if (strcmp(section->options[i].name, name) == 0) {
            return &section->options[i];
        }
    }
    return NULL;
}

static void print_comment(const char *text, FILE *out)
{
    fputs("# ", out);
    for (const char *at = text; *at != '\0'; at++) {
        fputc(*at, out);
        if (*at == '\n') {
            fputs("# ", out);
        }
    }
}

/* The options of a server are those of [headgate]: it is said which of them, and not once more what they are. */
static void print_shared_options(FILE *out, const char *quote, const char *begin, const char *next)
{
    static const struct {
        enum conf_reach reach;
        const char *what;
    } groups[] = {
        {CONF_REACH_ADDRESS, "Its own, whatever [" CONF_SECTION "] says: "},
        {CONF_REACH_SERVER, "As in [" CONF_SECTION "], unless it says otherwise: "},
        {CONF_REACH_PROCESS, "Of the whole process, and in [" CONF_SECTION "] only: "},
    };

    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        const char *separator = "";
        fprintf(out, "%s%s", begin, groups[i].what);
        for (size_t k = 0; k < sizeof conf_options / sizeof conf_options[0]; k++) {
            if (conf_options[k].reach == groups[i].reach) {
                fprintf(out, "%s%s%s%s", separator, quote, conf_options[k].name, quote);
                separator = next;
            }
        }
        fputs(".\n", out);
    }
}

static void print_ini_options(const struct conf_section *section, FILE *out)
{
    for (size_t i = 0; i < section->option_count; i++) {
        const struct conf_option *option = &section->options[i];
        char *expected = conf_value_expected(option);
        fputc('\n', out);
        print_comment(option->help, out);
        fprintf(out, "\n# Value: %s.\n# Reload: %s.\n#%s =%s%s\n", expected,
                option->reloadable ? "yes" : "no, takes a restart", option->name, *option->initial != '\0' ? " " : "",
                option->initial);
        free(expected);
    }
}

void conf_print_reference_ini(FILE *out, const struct conf_section *const *sections)
{
    fputs("# Every option of Headgate, at its default. Remove the \"#\" before an option to change it, then run\n"
          "# headgate -t -c FILE to check. A comment line starts with # or ;. A value ends with its line.\n"
          "# docs/configuration.md says more.\n\n[" CONF_SECTION "]\n",
          out);
    print_ini_options(&conf_section_headgate, out);
    for (; sections != NULL && *sections != NULL; sections++) {
        fputs("\n", out);
        print_comment((*sections)->help, out);
        fprintf(out, "\n#[%s%s]\n", (*sections)->name, (*sections)->has_rules ? ":NAME" : "");
        if ((*sections)->options == conf_options) {
            print_shared_options(out, "", "\n# ", ",\n#   ");
        } else {
            print_ini_options(*sections, out);
        }
    }
}

/* A table's row is one line in which a bar would end the cell. */
static void print_cell(const char *text, FILE *out)
{
    fputs(" ", out);
    for (; *text != '\0'; text++) {
        if (*text == '|') {
            fputc('\\', out);
        }
        fputc(*text == '\n' ? ' ' : *text, out);
    }
    fputs(" |", out);
}

static void print_markdown_options(const struct conf_section *section, FILE *out)
{
    fputs("| option | default | reload | value | meaning |\n|---|---|---|---|---|\n", out);
    for (size_t i = 0; i < section->option_count; i++) {
        const struct conf_option *option = &section->options[i];
        char *expected = conf_value_expected(option);
        char *initial = *option->initial != '\0' ? conf_format("`%s`", option->initial) : conf_format("empty");
        fprintf(out, "| `%s` |", option->name);
        print_cell(initial, out);
        print_cell(option->reloadable ? "yes" : "restart", out);
        print_cell(expected, out);
        print_cell(option->help, out);
        fputc('\n', out);
        free(initial);
        free(expected);
    }
}

void conf_print_reference_markdown(FILE *out, const struct conf_section *const *sections)
{
    print_markdown_options(&conf_section_headgate, out);
    for (; sections != NULL && *sections != NULL; sections++) {
        fprintf(out, "\n### [%s%s]\n\n", (*sections)->name, (*sections)->has_rules ? ":NAME" : "");
        for (const char *at = (*sections)->help; *at != '\0'; at++) {
            fputc(*at == '\n' ? ' ' : *at, out);
        }
        fputs("\n\n", out);
        if ((*sections)->options == conf_options) {
            print_shared_options(out, "`", "- ", ", ");
        } else {
            print_markdown_options(*sections, out);
        }
    }
}
