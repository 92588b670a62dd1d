/*
 * The secrets of a run with TLS: authorities, certificates, keys and passwords, in files. They have generations, each
 * of which is trusted from one before its own until one behind it: so nobody need change at the same moment as others.
 */
#ifndef CROSSTALK_SECRETS_H
#define CROSSTALK_SECRETS_H

#include "rig_certificate.h"
#include "rig_servers.h"

#include <openssl/types.h>
#include <stdbool.h>

/* The authorities that are trusted. */
#define SECRETS_TRUSTED 3

struct secrets {
    const char *directory;
    unsigned generation;
    struct authority *authorities[SECRETS_TRUSTED]; /* of the generation before, of this one, of the next */
};

/* Clients show certificates of two kinds: of nobody, and of an identity. */
#define SECRETS_CLIENT_KINDS 2
extern const char *const secrets_client_names[SECRETS_CLIENT_KINDS];

/* Writes the first generation into files of the directory, which must stay. False, told on standard error, if that
 * fails; free it in any case. */
bool secrets_make(struct secrets *secrets, const char *directory);
/* Goes on to the next generation, and writes the files of Redis, which have names of their own in each generation. */
bool secrets_renew(struct secrets *secrets);
/* Writes all that Headgate and the clients read, in place of what is there. */
bool secrets_publish(const struct secrets *secrets);
void secrets_free(struct secrets *secrets);

/* The path of a file; of Redis in the present generation. */
void secrets_path(const struct secrets *secrets, const char *name, char path[FILE_PATH_MAX]);
void secrets_redis_path(const struct secrets *secrets, const char *kind, char path[FILE_PATH_MAX]);

#define SECRETS_PASSWORD_MAX 64
/* Of a user whose password Headgate has from a file, in one generation. */
void secrets_password(char text[SECRETS_PASSWORD_MAX], unsigned user, unsigned generation);

/* What connections of clients of one kind need; with_certificate: they show theirs. NULL, told on standard error. */
SSL_CTX *secrets_client_context(const struct secrets *secrets, unsigned kind, bool with_certificate);
/* The serial number of the certificate that a server shows in the present generation. */
unsigned secrets_serial(const struct secrets *secrets);

#endif
