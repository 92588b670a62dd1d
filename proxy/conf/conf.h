/*
 * Configuration: an ini file over one table of options.
 *
 * A struct conf is built whole by conf_load() and never changed afterwards; a reload builds another and swaps it.
 */
#ifndef HEADGATE_CONF_H
#define HEADGATE_CONF_H

#include "base/slice.h"
#include "conf/conf_files.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

enum conf_pool { CONF_POOL_SHARED, CONF_POOL_SESSION };
/* What becomes of a request with keys in several slots of a cluster. */
enum conf_cross_slot { CONF_CROSS_SLOT_REFUSE, CONF_CROSS_SLOT_SPLIT };
/* Which clients are told, when they are to go elsewhere: those that go back to where they came from, or all that ask.
 */
enum conf_maintenance_notifications { CONF_MAINTENANCE_NO, CONF_MAINTENANCE_RECONNECT, CONF_MAINTENANCE_ADDRESS };
enum conf_reads { CONF_READS_MASTER, CONF_READS_PREFER_REPLICA, CONF_READS_REPLICA };
/* Who may change something on the admin port over TCP, without a password. */
enum conf_changes { CONF_CHANGES_SAME_USER, CONF_CHANGES_ANYONE };

/* Whether who connects says first whom it has passed on. */
enum conf_proxy_protocol { CONF_PROXY_PROTOCOL_OFF, CONF_PROXY_PROTOCOL_REQUIRED };

/* How servers stand behind an address. */
enum conf_topology {
    CONF_TOPOLOGY_SINGLE,   /* one server, which is at the address */
    CONF_TOPOLOGY_SENTINEL, /* a master with replicas: sentinels, which are the seeds, know which one it is */
    CONF_TOPOLOGY_CLUSTER   /* a Redis Cluster, of which the seeds are nodes */
};

#define CONF_ADDRESSES_MAX 16
/* Of an address, who is asked first. */
#define CONF_SEEDS_MAX 16
/* Of the name by which sentinels know a master, in bytes. */
#define CONF_MASTER_MAX 128
/* Of a list of networks, in bytes. */
#define CONF_NETWORKS_MAX 2048
/* Of a list of clients, in bytes. */
#define CONF_CLIENTS_MAX 2048
/* Of the name of a sidecar, in bytes: that of a machine is no longer. */
#define CONF_HOST_NAME_MAX 64

/* Servers of one process, besides that of [headgate]. */
#define CONF_SERVERS_MAX 64
/* Of a list of their names, in bytes. */
#define CONF_SERVERS_TEXT_MAX 2048
/* How the server that [headgate] is is called beside others. */
#define CONF_SERVER_DEFAULT "default"

/* A TCP address, the path of a Unix socket, or a topology: those whom to ask where the servers are. */
struct conf_address {
    char *host; /* NULL for a Unix socket and for a topology; else an IPv4 or IPv6 address or a name */
    uint16_t port;
    bool tls;   /* by rediss://, sentinels:// (of sentinels and servers) and clusters:// */
    char *path; /* NULL for TCP */
    enum conf_topology topology;
    struct conf_address *seeds; /* of a topology, in the order of the text: host, port and text of each; else NULL */
    size_t seed_count;          /* 0: it is no topology */
    char *master;               /* by which sentinels know it; NULL: they are not asked */
    char *text; /* for logs, as the operator wrote it: "127.0.0.1:6379", "rediss://redis.local", "unix:/run/redis.sock",
                 * "sentinel://a,b/mymaster"; without user, password and database; "": there is none */
    /* Of a URL, until conf_load() has moved them to the options that are for them (conf_credentials.c). */
    char *user;       /* NULL: not given */
    char *password;   /* NULL: not given */
    int64_t database; /* -1: not given */
};

struct conf_address_list {
    struct conf_address items[CONF_ADDRESSES_MAX];
    size_t count;
};

/* What a listener asks of who connects. */
struct conf_listener_terms {
    enum conf_proxy_protocol proxy_protocol;
    char *proxy_from; /* who is believed: text of networks.h */
    char *allow;      /* who is let in: text of net/admission.h … */
    char *refuse;     /* … and who is not */
};

/* A listener of a configuration, which has what it points to. */
struct conf_listener {
    const char *name; /* of [listener:NAME]; "" for that of [headgate] */
    const struct conf_address_list *listen;
    const struct conf_listener_terms *terms;
};

struct conf_section; /* conf_table.h */
struct conf_option;  /* the same */
struct tls_context;  /* tls_context.h */

/* Where the value of an option is from. */
struct conf_origin {
    char *file; /* that says it; NULL: none does */
    int line;
    bool is_set; /* by conf_change(), whatever the file says */
};

/* An option, as it is told to who asks. */
struct conf_listed {
    const struct conf_option *option;
    char *name;   /* "lanes", of another section than [headgate] "limit:search.limit" */
    char *value;  /* as conf_change() would take it, and ******** for a secret that is set */
    char *source; /* what says the value: "default", "FILE:LINE", the file of a secret, or "CONFIG SET" */
};

/* A section besides [headgate], as it stands in the file. */
struct conf_rule {
    struct conf_rule *next; /* in the order of the file */
    const struct conf_section *section;
    char *name; /* of [section:NAME]; "" where the section has no rules with names */
    int line;
    void *values;                    /* what the section's options fill */
    struct conf_origin *origins;     /* of each of its options, in their order */
    struct tls_context *tls;         /* towards the server that it names; NULL: without TLS */
    struct tls_context *tls_clients; /* of a [server:NAME], towards its clients; NULL: that of [headgate] */
};

/* The options of TLS towards a server (conf_server_tls.inc). Texts are "" for none. */
struct conf_server_tls {
    char *certificate;
    char *key;
    char *ca; /* "" for those of the system */
    char *crl;
    int verify;
    char *server_name; /* "" for that of the address */
};

/* Times are in milliseconds, sizes in bytes. 0 means "off" or "no limit" wherever the option table allows it. */
struct conf {
    struct conf_address_list listen;
    struct conf_listener_terms listener_terms; /* of those addresses */
    struct conf_address_list admin;            /* may be empty: no admin port */
    char *admin_password;                      /* "" for none */
    char *admin_password_file;                 /* where it was read; "": it stands in the ini file, and so below */
    char *admin_read_password;                 /* of who may look, and change nothing; "" for none */
    char *admin_read_password_file;
    enum conf_changes admin_changes;
    struct conf_address_list http; /* may be empty: no HTTP */
    char *http_names;              /* by which browsers may ask for it, between blanks or commas; "" for none */
    struct conf_address upstream;
    char *upstream_user;     /* "" for the default user */
    char *upstream_password; /* "" for none */
    char *upstream_password_file;
    char *sentinel_user;     /* towards sentinels; "" for the default user */
    char *sentinel_password; /* "" for none */
    char *sentinel_password_file;
    int64_t sentinel_check;   /* how often sentinels are asked where the master is, and the master whether it is one */
    int64_t sentinel_timeout; /* how long they may take to answer */
    int64_t access_check;     /* how often to look whether Redis wants a password of those who come */
    enum conf_cross_slot cross_slot;
    enum conf_reads reads;   /* who answers what only reads */
    int64_t max_lag;         /* a replica that is further behind is not read from */
    int64_t read_own_writes; /* so long after a write its client reads from the master */
    enum conf_pool pool;
    int64_t threads;
    int64_t lanes; /* shared lanes of each profile on each worker */
    int64_t max_clients;
    int64_t backlog;
    int64_t unix_socket_mode; /* permission bits of listening Unix sockets, written in octal */
    int64_t client_idle_timeout;
    int64_t client_id_timeout; /* how long a client keeps the lane whose id it was told */
    int64_t client_output_limit;
    int64_t memory_limit;
    int64_t client_pipeline_limit; /* requests of one client under way at once */
    int64_t max_request;           /* the longest argument, as Redis' proto-max-bulk-len */
    int64_t cut_through;           /* a longer request goes through an exclusive lane without being held in memory */
    int64_t tcp_keepalive;
    int64_t tcp_user_timeout;        /* of lanes */
    int64_t client_tcp_user_timeout; /* of clients; 0: a slow reader is never given up by the kernel for that */
    int64_t connect_timeout;
    int64_t reconnect_min;
    int64_t reconnect_max;
    int64_t auth_timeout;           /* how long Redis may take to answer AUTH */
    int64_t upstream_wait;          /* how long a request that could not be sent waits for Redis to come back */
    int64_t upstream_wait_requests; /* and how many may wait on one worker */
    int64_t upstream_reply_timeout; /* a shared lane without an answer for so long is closed */
    int64_t exclusive_idle;         /* clean exclusive lanes kept for reuse, each worker and server */
    int64_t exclusive_ready;        /* of them, opened ahead */
    int64_t lane_idle_timeout;      /* unused lanes are closed after this */
    int64_t resolve_every;  /* how often the names of servers are looked up; 0: when lanes are opened, or fail */
    int64_t retire_timeout; /* exclusive lanes to an address that the name has left are closed after this */
    int64_t drain_timeout;
    enum conf_maintenance_notifications maintenance_notifications;
    int64_t upgrade_start_timeout;
    int64_t upgrade_clients_timeout;
    char *tls_certificate; /* towards clients; paths are "" for none */
    char *tls_key;
    char *tls_ca;
    char *tls_crl;
    int client_certificates; /* enum tls_client_certificates */
    char *tls_protocols;     /* of both sides, as are the ciphers */
    char *tls_ciphers;
    char *tls_ciphersuites;
    int64_t tls_handshake_timeout;
    int64_t tls_handshakes;            /* steps of handshakes in one loop iteration of their thread */
    struct conf_server_tls server_tls; /* of upstream_certificate and so on */
    struct tls_context *tls_clients;   /* made of these; NULL: nobody speaks TLS here */
    struct tls_context *tls_upstream;  /* the same towards Redis */
    char *host_name;                   /* of this sidecar among others; "" for that of the machine */
    char *user;                        /* whom root becomes; "": it stays */
    char *group;                       /* "": that of the user */
    int reload_on_change;              /* 0 or 1 */
    char *pid_file;                    /* "" for none */
    int log_level;                     /* enum log_level */
    int log_format;                    /* enum log_format */
    char *log_file;                    /* "" is standard error, LOG_SYSLOG the system's log */
    char *path;                        /* of the file this came from; "" for defaults */
    char *shown; /* as conf_print() writes it, without passwords: printing takes memory that may not be there later */
    struct conf_origin *origins; /* of each of conf_options; of a server: NULL */
    struct conf_listed *listed;  /* of a file: what is told of each option, ready, as is shown … */
    size_t listed_count;
    struct conf_rule *rules;
    char *server_name;          /* of [server:NAME], if this is what one of several servers goes by; else "" */
    bool serves;                /* of a file: [headgate] is a server itself, not only what others have in common */
    struct conf **servers;      /* of a file: what each server goes by, by itself; see conf_server_at() */
    size_t server_count;        /* at least 1 */
    const struct conf *process; /* of a server: the whole, which outlives it; of a file: itself */
};

/* Lines ready to print. Faults: "FILE:LINE: [section] option = value: what is wrong, what was expected". Warnings, of
 * what is sound but can hardly be meant: "FILE:LINE: [section]: what will be". */
struct conf_faults {
    char **lines;
    size_t count;
    char **warnings;
    size_t warning_count;
    struct conf_files files; /* what was read, or was to be read: also of a configuration that is not sound */
};

/*
 * Reads the file at path (NULL: all defaults). sections are those that may stand beside [headgate], up to a NULL; NULL
 * for none. Returns a configuration that the caller owns, or NULL with every fault
 * of the file in *faults, which has the warnings either way. faults is initialised here, and must be given to
 * conf_faults_free() either way.
 */
struct conf *conf_load(const char *path, const struct conf_section *const *sections, struct conf_faults *faults);
void conf_free(struct conf *conf);
void conf_faults_free(struct conf_faults *faults);

/*
 * The servers of a process: that of [headgate] first, unless it only says what the others have in common, then those of
 * [server:NAME] in the order of the file. A reload changes neither their number nor their order. What a server goes by
 * is a configuration as if it were alone: with its own addresses and options, and the rules and listeners that concern
 * it. It belongs to conf. process: whole, of one file.
 */
size_t conf_server_count(const struct conf *process);
const struct conf *conf_server_at(const struct conf *process, size_t index);
/* How operators call it: CONF_SERVER_DEFAULT, or the name in [server:NAME]. */
const char *conf_server_name(const struct conf *server);

/* Whether some requests are answered by replicas, if there are any: by the option reads of the server, or by rules. */
bool conf_reads_replicas(const struct conf *server);

/* The address of Headgate's own, as text, to which who connects to that one would get; NULL if to none. */
const char *conf_own_address(const struct conf *conf, const struct sockaddr *to);

/* The listeners of a server: that of its section first, then those of the sections in the order of the file. A reload
 * changes neither their number nor their order. */
size_t conf_listener_count(const struct conf *conf);
struct conf_listener conf_listener_at(const struct conf *conf, size_t index);

/* Writes the effective configuration as an ini file. Passwords are written as ******** unless show_secrets. */
void conf_print(const struct conf *conf, FILE *out, bool show_secrets);

/* The reference: every option with its help, type, bounds, default and whether a reload takes it; as a commented ini
 * file (conf/headgate.ini is this text) and as a Markdown table (docs/configuration.md holds it). */
void conf_print_reference_ini(FILE *out, const struct conf_section *const *sections);
void conf_print_reference_markdown(FILE *out, const struct conf_section *const *sections);
/* The same as the body of a manual page, in the language of base/roff.h. */
void conf_print_manual(FILE *out, const struct conf_section *const *sections);

/* What of a file that was merged into what is in force is not taken over before a restart, one call each: "NAME", or,
 * if it waits with another option, "NAME (with OTHER)". */
void conf_restart_only_changes(const struct conf *merged, const struct conf *fresh,
                               void (*report)(void *context, const char *option), void *context);

/* What is otherwise in new_conf, one call each: an option of [headgate], or the heading of a section. */
void conf_changes(const struct conf *old, const struct conf *new_conf, void (*report)(void *context, const char *what),
                  void *context);

struct conf_setting;

/* One option, as it is told to who asks. */
struct conf_fact {
    const char *name; /* "lanes", of another section than [headgate] "limit:search.limit" */
    const struct conf_option *option;
    const struct conf_section *section;
    const void *values;               /* of the section */
    const struct conf_origin *origin; /* of a server's own, or of [headgate], which it has it from */
};

/* A value that an option is to have from now on. */
struct conf_setting {
    struct slice name;  /* as in struct conf_fact, with the option in any case of letters */
    struct slice value; /* as it is: nothing in it is quoted, or stands for a variable */
};

/* A value that somebody wants to set, as it may be shown to others. The caller frees it. */
char *conf_setting_shown(const struct conf *process, const struct conf_setting *setting);
/* The same of its name: of one that is none, what stands before a blank or "=", as behind it may stand a value. */
struct slice conf_setting_name_shown(const struct conf *process, const struct conf_setting *setting);

/* A value with blanks that was not quoted comes as several words, of which the later ones look like names and values.
 * Of a secret these must not be shown. Places in the list, or its length if there is no such setting. */
struct conf_doubt {
    size_t
        first; /* what follows it may be parts of its value: it has a secret, or a name that is none or stands for it */
    size_t split; /* … and so it is: this one behind it has a name that is none */
};

struct conf_doubt conf_settings_doubt(const struct conf *process, const struct conf_setting *settings, size_t count);

/*
 * A copy of the configuration of a file with these values, if it is sound with all of them: then the caller's. Else
 * NULL with the faults, which go to conf_faults_free() either way. Takes what a reload would take, but for the names of
 * files, and what says who may use the admin port. sections as for conf_load().
 */
struct conf *conf_change(const struct conf *process, const struct conf_section *const *sections,
                         const struct conf_setting *settings, size_t count, struct conf_faults *faults);

/* Those that conf_change() has set, one call each. */
void conf_settings(const struct conf *process, void (*report)(void *context, const char *name), void *context);

/* A copy of new_conf with the values of old where a reload may not change them: what a reload makes effective. Rules
 * are always those of new_conf. sections as for conf_load(). NULL: that is not sound, as faults says, to which it adds.
 */
struct conf *conf_merge_reloadable(const struct conf *old, const struct conf *new_conf,
                                   const struct conf_section *const *sections, struct conf_faults *faults);

#endif
