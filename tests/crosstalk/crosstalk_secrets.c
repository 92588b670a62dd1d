#include "crosstalk_secrets.h"

#include "crosstalk_client.h"
#include "crosstalk_tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_SIZE 64

enum { BEFORE, PRESENT, NEXT };

const char *const secrets_client_names[SECRETS_CLIENT_KINDS] = {"nobody", "somebody"};

void secrets_path(const struct secrets *secrets, const char *name, char path[FILE_PATH_MAX])
{
    directory_file(secrets->directory, name, path);
}

void secrets_redis_path(const struct secrets *secrets, const char *kind, char path[FILE_PATH_MAX])
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "redis-%u-%s", secrets->generation, kind);
    secrets_path(secrets, name, path);
}

unsigned secrets_serial(const struct secrets *secrets)
{
    return secrets->generation + 1;
}

void secrets_password(char text[SECRETS_PASSWORD_MAX], unsigned user, unsigned generation)
{
    snprintf(text, SECRETS_PASSWORD_MAX, "password-%u-of-%s", generation, user_names[user]);
}

/* ---- files ---- */

static bool issue(const struct secrets *secrets, const char *name, const char *certificate_file, const char *key_file)
{
    char certificate[FILE_PATH_MAX], key[FILE_PATH_MAX];
    secrets_path(secrets, certificate_file, certificate);
    secrets_path(secrets, key_file, key);
    return authority_issue(secrets->authorities[PRESENT], (struct authority_subject){name, secrets_serial(secrets)},
                           certificate, key);
}

static bool write_redis(const struct secrets *secrets)
{
    char certificate[FILE_PATH_MAX], key[FILE_PATH_MAX], ca[FILE_PATH_MAX];
    secrets_redis_path(secrets, "certificate", certificate);
    secrets_redis_path(secrets, "key", key);
    secrets_redis_path(secrets, "ca", ca);
    return authority_write(secrets->authorities, SECRETS_TRUSTED, ca) &&
           authority_issue(secrets->authorities[PRESENT], (struct authority_subject){"redis", secrets_serial(secrets)},
                           certificate, key);
}

static bool write_password(const struct secrets *secrets, unsigned user)
{
    char path[FILE_PATH_MAX], fresh[FILE_PATH_MAX], password[SECRETS_PASSWORD_MAX];
    secrets_path(secrets, user_names[user], path);
    secrets_path(secrets, "fresh", fresh);
    secrets_password(password, user, secrets->generation);
    FILE *file = fopen(fresh, "w");
    bool written = file != NULL && fprintf(file, "%s\n", password) > 0;
    written = file != NULL && fchmod(fileno(file), 0600) == 0 && written;
    written = file != NULL && fclose(file) == 0 && written && rename(fresh, path) == 0;
    if (!written)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return written;
}

bool secrets_publish(const struct secrets *secrets)
{
    char ca[FILE_PATH_MAX];
    secrets_path(secrets, "ca.pem", ca);
    bool written = authority_write(secrets->authorities, SECRETS_TRUSTED, ca) &&
                   issue(secrets, "headgate", "server.pem", "server.key") &&
                   issue(secrets, "headgate", "upstream.pem", "upstream.key") &&
                   issue(secrets, secrets_client_names[0], "client0.pem", "client0.key") &&
                   issue(secrets, secrets_client_names[1], "client1.pem", "client1.key");
    for (unsigned user = USERS_NAMED; user < USERS; user++)
        written = written && write_password(secrets, user);
    return written;
}

/* ---- generations ---- */

bool secrets_make(struct secrets *secrets, const char *directory)
{
    *secrets = (struct secrets){.directory = directory};
    for (unsigned at = 0; at < SECRETS_TRUSTED; at++) {
        secrets->authorities[at] = authority_make(at);
        if (secrets->authorities[at] == NULL)
            return false;
    }
    return write_redis(secrets) && secrets_publish(secrets);
}

bool secrets_renew(struct secrets *secrets)
{
    struct authority *fresh = authority_make(secrets->generation + SECRETS_TRUSTED);
    if (fresh == NULL)
        return false;
    authority_free(secrets->authorities[BEFORE]);
    secrets->authorities[BEFORE] = secrets->authorities[PRESENT];
    secrets->authorities[PRESENT] = secrets->authorities[NEXT];
    secrets->authorities[NEXT] = fresh;
    secrets->generation++;
    return write_redis(secrets);
}

void secrets_free(struct secrets *secrets)
{
    for (unsigned at = 0; at < SECRETS_TRUSTED; at++)
        authority_free(secrets->authorities[at]);
}

SSL_CTX *secrets_client_context(const struct secrets *secrets, unsigned kind, bool with_certificate)
{
    char ca[FILE_PATH_MAX], certificate[FILE_PATH_MAX], key[FILE_PATH_MAX], name[NAME_SIZE];
    secrets_path(secrets, "ca.pem", ca);
    snprintf(name, sizeof name, "client%u.pem", kind);
    secrets_path(secrets, name, certificate);
    snprintf(name, sizeof name, "client%u.key", kind);
    secrets_path(secrets, name, key);
    SSL_CTX *context = tls_context_new(ca, with_certificate ? certificate : NULL, key);
    if (context == NULL)
        fprintf(stderr, "%s: clients cannot use it\n", certificate);
    return context;
}
