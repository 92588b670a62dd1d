#include "crosstalk_rotation.h"

#include "crosstalk_client.h"
#include "crosstalk_tls.h"

#include <openssl/err.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <unistd.h>

/* From one to the next: until then Headgate has tried the new passwords, and handshakes that had begun are over. */
#define PAUSE_US ((int64_t)2000000)
#define PATIENCE_US ((int64_t)20000000)
#define RETRY_US 20000
#define COMMAND_SIZE (4 * FILE_PATH_MAX)

void rotation_init(struct rotation *rotation, struct run *run, struct servers *servers)
{
    *rotation = (struct rotation){.run = run, .servers = servers, .next_us = now_us() + PAUSE_US};
}

bool rotation_equip_clients(struct run *run, const struct secrets *secrets)
{
    bool equipped = true;
    for (unsigned kind = 0; kind < SECRETS_CLIENT_KINDS; kind++) {
        SSL_CTX *fresh = secrets_client_context(secrets, kind, run->options.rotate);
        equipped = equipped && fresh != NULL;
        pthread_mutex_lock(&run->tls_mutex);
        SSL_CTX *before = run->tls[kind];
        run->tls[kind] = fresh;
        pthread_mutex_unlock(&run->tls_mutex);
        SSL_CTX_free(before);
    }
    return equipped;
}

/* ---- Redis ---- */

static bool tell_redis(const struct rotation *rotation, const char *command)
{
    if (servers_ask_redis(rotation->servers, command, "+OK"))
        return true;
    fprintf(stderr, "Redis does not take: %s", command);
    return false;
}

static bool exchange_certificates(const struct rotation *rotation)
{
    const struct secrets *secrets = &rotation->servers->secrets;
    char command[COMMAND_SIZE], certificate[FILE_PATH_MAX], key[FILE_PATH_MAX], ca[FILE_PATH_MAX];
    secrets_redis_path(secrets, "certificate", certificate);
    secrets_redis_path(secrets, "key", key);
    secrets_redis_path(secrets, "ca", ca);
    snprintf(command, sizeof command, "CONFIG SET tls-cert-file %s tls-key-file %s tls-ca-cert-file %s\r\n",
             certificate, key, ca);
    return tell_redis(rotation, command);
}

/* sign: > to add the password of a generation, < to remove it. */
static bool change_passwords(const struct rotation *rotation, char sign, unsigned generation)
{
    char command[COMMAND_SIZE], password[SECRETS_PASSWORD_MAX];
    bool changed = true;
    for (unsigned user = USERS_NAMED; user < USERS && changed; user++) {
        secrets_password(password, user, generation);
        snprintf(command, sizeof command, "ACL SETUSER %s %c%s\r\n", user_names[user], sign, password);
        changed = tell_redis(rotation, command);
    }
    return changed;
}

/* ---- Headgate ---- */

static bool has_reloaded(const struct rotation *rotation)
{
    return servers_ask_headgate(rotation->servers, "RELOAD\r\n", "+OK");
}

/* Whether new connections are shown the certificate of this generation. */
static bool shows_new_certificate(const struct rotation *rotation)
{
    SSL_CTX *context = secrets_client_context(&rotation->servers->secrets, 0, true);
    int fd = process_connect(rotation->servers->headgate_tls_port.number);
    SSL *tls = fd >= 0 && context != NULL ? tls_start(context, fd, NULL) : NULL;
    bool shown = tls != NULL && SSL_do_handshake(tls) == 1 &&
                 ASN1_INTEGER_get(X509_get0_serialNumber(SSL_get0_peer_certificate(tls))) ==
                     (long)secrets_serial(&rotation->servers->secrets);
    ERR_clear_error();
    SSL_free(tls);
    SSL_CTX_free(context);
    if (fd >= 0)
        close(fd);
    return shown;
}

static bool await(const struct rotation *rotation, bool (*holds)(const struct rotation *rotation), const char *what)
{
    int64_t limit = now_us() + PATIENCE_US;
    while (!holds(rotation)) {
        if (now_us() > limit) {
            fprintf(stderr, "crosstalk: %s, generation %u\n", what, rotation->servers->secrets.generation);
            return false;
        }
        usleep(RETRY_US);
    }
    return true;
}

/* ---- all of it ---- */

static bool rotate(const struct rotation *rotation)
{
    struct secrets *secrets = &rotation->servers->secrets;
    unsigned before = secrets->generation;
    return secrets_renew(secrets) && change_passwords(rotation, '>', before + 1) && exchange_certificates(rotation) &&
           secrets_publish(secrets) && await(rotation, has_reloaded, "Headgate does not reload") &&
           await(rotation, shows_new_certificate, "Headgate does not show its new certificate") &&
           rotation_equip_clients(rotation->run, secrets) &&
           (before == 0 || change_passwords(rotation, '<', before - 1));
}

bool rotation_step(struct rotation *rotation)
{
    if (now_us() < rotation->next_us)
        return true;
    bool done = rotate(rotation);
    rotation->done++;
    rotation->next_us = now_us() + PAUSE_US;
    return done;
}
