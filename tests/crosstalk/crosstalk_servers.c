#include "crosstalk_servers.h"

#include "crosstalk_attacks.h"
#include "crosstalk_client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char test[] = "crosstalk";

#define CERTIFIED_PASSWORD "secret3"

bool servers_renew_tls(struct servers *servers)
{
    static const char *const subjects[] = {"redis", "headgate", "upstream", "client"};
    bool made = true;
    servers->serial++;
    for (size_t at = 0; at < sizeof subjects / sizeof *subjects; at++) {
        char name[32], certificate[FILE_PATH_MAX], key[FILE_PATH_MAX];
        snprintf(name, sizeof name, "%s.pem", subjects[at]);
        directory_file(servers->directory, name, certificate);
        snprintf(name, sizeof name, "%s.key", subjects[at]);
        directory_file(servers->directory, name, key);
        made = made && authority_issue(servers->authority, (struct authority_subject){subjects[at], servers->serial},
                                       certificate, key);
    }
    return made;
}

static bool make_tls(struct servers *servers)
{
    char path[FILE_PATH_MAX];
    servers->authority = authority_make(1);
    directory_file(servers->directory, "ca.pem", path);
    if (servers->authority == NULL || !authority_write(&servers->authority, 1, path) || !servers_renew_tls(servers))
        return false;
    directory_file(servers->directory, "password", path);
    FILE *file = fopen(path, "w");
    bool written = file != NULL && fchmod(fileno(file), 0600) == 0 && fputs(CERTIFIED_PASSWORD "\n", file) >= 0;
    return file != NULL && fclose(file) == 0 && written;
}

bool servers_prepare(struct servers *servers, const struct options *options)
{
    *servers = (struct servers){
        .admin_port.reservation = -1, .redis_tls_port.reservation = -1, .headgate_tls_port.reservation = -1};
    bool taken = server_prepare(&servers->redis, test, "redis");
    taken = server_prepare(&servers->headgate, test, "headgate") && taken && port_take(&servers->admin_port);
    taken = taken && port_take(&servers->redis_tls_port) && port_take(&servers->headgate_tls_port);
    if (taken)
        return directory_make(servers->directory, test) && (!options->tls || make_tls(servers));
    fprintf(stderr, "crosstalk: no free port: %s\n", strerror(errno));
    return false;
}

bool servers_ask_redis(const struct servers *servers, const char *command, const char *answer)
{
    return process_ask(servers->redis.port.number, command, answer);
}

bool servers_ask_headgate(const struct servers *servers, const char *command, const char *answer)
{
    return process_ask(servers->admin_port.number, command, answer);
}

/* Whether SCRIPT DEBUG goes no further than Headgate, even if Redis and rules allow it. */
static bool refuses_debugger(const struct options *options)
{
    return options->headgate != NULL && strcmp(options->pool, "shared") == 0;
}

/* The attackers' own user has what an ordinary user has; two commands have other names than Headgate knows. */
static void write_attacker_conf(FILE *file, const struct options *options)
{
    fprintf(file,
            "user " ATTACKER_USER " on >" ATTACKER_PASSWORD
            " ~evil:* &evil* +@all -@admin -@dangerous -script|flush -script|kill -function%s\n",
            refuses_debugger(options) ? "" : " -script|debug");
    fputs("rename-command OBJECT KOBJECT\nrename-command SSUBSCRIBE KSSUBSCRIBE\n", file);
}

static void write_user(FILE *file, unsigned user, const char *password)
{
    fprintf(file, "user %s on >%s ~u%u:* ~life:* &* +@all\n", user_names[user], password, user);
}

static void write_users(FILE *file, const struct options *options)
{
    for (unsigned user = 1; user < USERS_NAMED; user++)
        write_user(file, user, user_passwords[user]);
    if (options->rotate)
        write_user(file, USERS - 1, CERTIFIED_PASSWORD);
}

static void write_redis_tls(FILE *file, const struct servers *servers, const struct options *options)
{
    const char *directory = servers->directory;
    fprintf(file,
            "tls-port %u\ntls-cert-file %s/redis.pem\ntls-key-file %s/redis.key\ntls-ca-cert-file "
            "%s/ca.pem\ntls-auth-clients %s\n",
            (unsigned)servers->redis_tls_port.number, directory, directory, directory, options->rotate ? "yes" : "no");
}

/* What is written into configurations. */
struct wanted {
    const struct servers *servers;
    const struct options *options;
};

static void configure_redis(FILE *file, const void *context)
{
    const struct servers *servers = ((const struct wanted *)context)->servers;
    const struct options *options = ((const struct wanted *)context)->options;
    fprintf(file, "bind 127.0.0.1\nport %u\nsave \"\"\nappendonly no\ndir %s\n", (unsigned)servers->redis.port.number,
            servers->directory);
    fprintf(file, "client-output-buffer-limit pubsub 0 0 0\n");
    write_users(file, options);
    if (options->attackers > 0)
        write_attacker_conf(file, options);
    if (options->tls)
        write_redis_tls(file, servers, options);
}

bool servers_start_redis(struct servers *servers, const struct options *options)
{
    return server_start(&servers->redis, servers->directory, "redis-server", NULL, configure_redis,
                        &(struct wanted){servers, options});
}

void servers_kill_redis(struct servers *servers)
{
    server_kill(&servers->redis);
}

/* Of every kind that holds requests: while Redis decides on them, while permits are fetched, and until their turn. GETs
 * are put to the limits in groups, amid those that a rule on keys is asked about one by one. */
static const char limit_rules[] = "[limit:asked]\n"
                                  "commands = incr mget\n"
                                  "per = all\n"
                                  "limit = 1000000000\n"
                                  "window = 60s\n"
                                  "scope = global\n"
                                  "[limit:leased]\n"
                                  "commands = @write !incr\n"
                                  "per = key\n"
                                  "limit = 1000000\n"
                                  "window = 10s\n"
                                  "scope = global\n"
                                  "accuracy = leased\n"
                                  "[limit:delayed]\n"
                                  "commands = echo set\n"
                                  "per = all\n"
                                  "algorithm = funnel\n"
                                  "capacity = 50\n"
                                  "leak = 20000/s\n"
                                  "action = delay\n"
                                  "max_delay = 10m\n"
                                  "[limit:counted]\n"
                                  "per = ip+user\n"
                                  "limit = 1000000000\n"
                                  "window = 1s\n"
                                  "[deny:observed]\n"
                                  "keys = *1 *3\n"
                                  "action = observe\n";

/* What is read anew with them: on both sides, of upstream_user, and of the identity that all clients have. */
static void write_rotation(FILE *file, const struct servers *servers)
{
    const char *directory = servers->directory;
    const char *user = user_names[USERS - 1];
    fprintf(
        file,
        "client_certificates = required\ntls_ca = %s/ca.pem\nupstream_certificate = "
        "%s/upstream.pem\nupstream_key = %s/upstream.key\nupstream_user = %s\nupstream_password_file = %s/password\n",
        directory, directory, directory, user, directory);
    fprintf(file,
            "[identity:somebody]\ncertificate = cn:client\nupstream_user = %s\nupstream_password_file = %s/password\n",
            user, directory);
}

/* With TLS all shake hands at once, and on a busy machine some for longer than usual, or than anything is excused. */
static void write_addresses(FILE *file, const struct servers *servers, bool tls)
{
    const char *directory = servers->directory;
    fprintf(file, "[headgate]\nadmin = 127.0.0.1:%u\n", (unsigned)servers->admin_port.number);
    if (tls)
        fprintf(file,
                "listen = 127.0.0.1:%u, rediss://127.0.0.1:%u\nupstream = rediss://127.0.0.1:%u\n"
                "tls_certificate = %s/headgate.pem\ntls_key = %s/headgate.key\nupstream_ca = %s/ca.pem\n"
                "tls_handshake_timeout = 60s\n",
                (unsigned)servers->headgate.port.number, (unsigned)servers->headgate_tls_port.number,
                (unsigned)servers->redis_tls_port.number, directory, directory, directory);
    else
        fprintf(file, "listen = 127.0.0.1:%u\nupstream = 127.0.0.1:%u\n", (unsigned)servers->headgate.port.number,
                (unsigned)servers->redis.port.number);
}

static void configure_headgate(FILE *file, const void *context)
{
    const struct servers *servers = ((const struct wanted *)context)->servers;
    const struct options *options = ((const struct wanted *)context)->options;
    write_addresses(file, servers, options->tls);
    /* Short, so that clients go back to shared lanes in the midst of everything. */
    fprintf(file, "threads = %u\npool = %s\nclient_id_timeout = 200ms\n", options->threads, options->pool);
    if (options->attackers > 0 || options->rotate)
        /* More connections are opened than a busy machine makes in the usual time, and no error is excused here. */
        fputs("upstream_wait = 60s\n", file);
    fputs(options->attackers > 0 ? "client_output_limit = 16mb\n" : "", file);
    if (options->rotate)
        write_rotation(file, servers);
    if (options->attackers > 0)
        fprintf(file, ATTACKER_RULE "%s", refuses_debugger(options) ? "" : ATTACKER_RULE_OF_SESSIONS);
    fputs(options->limits ? limit_rules : "", file);
}

bool servers_start_headgate(struct servers *servers, const struct options *options)
{
    /* Whether Headgate binds beside a reservation is its own affair. */
    port_release(&servers->headgate.port);
    port_release(&servers->headgate_tls_port);
    port_release(&servers->admin_port);
    return server_start(&servers->headgate, servers->directory, options->headgate, "-c", configure_headgate,
                        &(struct wanted){servers, options});
}

bool servers_headgate_lives(struct servers *servers)
{
    return server_has_not_ended(&servers->headgate) && servers->headgate.pid > 0;
}

bool servers_end_headgate(struct servers *servers)
{
    return servers->headgate.pid > 0 && server_end(&servers->headgate, servers->directory);
}

void servers_free(struct servers *servers, bool keep)
{
    server_free(&servers->headgate);
    server_free(&servers->redis);
    port_release(&servers->admin_port);
    port_release(&servers->redis_tls_port);
    port_release(&servers->headgate_tls_port);
    authority_free(servers->authority);
    directory_leave(servers->directory, test, keep);
}
