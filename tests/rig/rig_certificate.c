#include "rig_certificate.h"

#include <errno.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DAY (24L * 60 * 60)
#define PATH_SIZE 400

struct authority {
    EVP_PKEY *key;
    X509 *certificate;
};

/* ---- making ---- */

static bool add_extension(X509 *certificate, int kind, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, kind, value);
    bool added = extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

/* All but who has issued it. */
static bool fill(X509 *certificate, EVP_PKEY *key, struct authority_subject subject)
{
    X509_NAME *name = X509_get_subject_name(certificate);
    return X509_set_version(certificate, X509_VERSION_3) == 1 &&
           ASN1_INTEGER_set(X509_get_serialNumber(certificate), (long)subject.serial) == 1 &&
           X509_gmtime_adj(X509_getm_notBefore(certificate), -DAY) != NULL &&
           X509_gmtime_adj(X509_getm_notAfter(certificate), 30 * DAY) != NULL &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)subject.name, -1, -1, 0) == 1 &&
           X509_set_pubkey(certificate, key) == 1;
}

static bool fill_authority(const struct authority *authority, unsigned number)
{
    char name[32];
    snprintf(name, sizeof name, "authority %u", number);
    return fill(authority->certificate, authority->key, (struct authority_subject){name, 1}) &&
           X509_set_issuer_name(authority->certificate, X509_get_subject_name(authority->certificate)) == 1 &&
           add_extension(authority->certificate, NID_basic_constraints, "critical,CA:TRUE") &&
           X509_sign(authority->certificate, authority->key, EVP_sha256()) > 0;
}

struct authority *authority_make(unsigned number)
{
    struct authority *authority = calloc(1, sizeof *authority);
    if (authority == NULL)
        return NULL;
    authority->key = EVP_EC_gen("P-256");
    authority->certificate = X509_new();
    if (authority->key != NULL && authority->certificate != NULL && fill_authority(authority, number))
        return authority;
    fprintf(stderr, "no authority could be made\n");
    authority_free(authority);
    return NULL;
}

void authority_free(struct authority *authority)
{
    if (authority == NULL)
        return;
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
    free(authority);
}

/* ---- files ---- */

/* A file is there whole, or not at all: whoever reads it meanwhile reads the one of before. */
static FILE *begin_file(const char *path, char *fresh)
{
    snprintf(fresh, PATH_SIZE, "%s.fresh", path);
    return fopen(fresh, "w");
}

static bool end_file(FILE *file, bool written, const char *fresh, const char *path)
{
    written = file != NULL && chmod(fresh, 0600) == 0 && written;
    written = file != NULL && fclose(file) == 0 && written && rename(fresh, path) == 0;
    if (!written)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return written;
}

static bool write_certificate(X509 *certificate, const char *path)
{
    char fresh[PATH_SIZE];
    FILE *file = begin_file(path, fresh);
    return end_file(file, file != NULL && PEM_write_X509(file, certificate) == 1, fresh, path);
}

static bool write_key(EVP_PKEY *key, const char *path)
{
    char fresh[PATH_SIZE];
    FILE *file = begin_file(path, fresh);
    bool written = file != NULL && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1;
    return end_file(file, written, fresh, path);
}

bool authority_issue(const struct authority *authority, struct authority_subject subject, const char *certificate_path,
                     const char *key_path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    bool made = key != NULL && certificate != NULL && fill(certificate, key, subject) &&
                X509_set_issuer_name(certificate, X509_get_subject_name(authority->certificate)) == 1 &&
                add_extension(certificate, NID_subject_alt_name, "IP:127.0.0.1") &&
                X509_sign(certificate, authority->key, EVP_sha256()) > 0;
    if (!made)
        fprintf(stderr, "%s: no certificate could be made\n", certificate_path);
    made = made && write_certificate(certificate, certificate_path) && write_key(key, key_path);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return made;
}

bool authority_write(struct authority *const authorities[], size_t count, const char *path)
{
    char fresh[PATH_SIZE];
    FILE *file = begin_file(path, fresh);
    bool written = file != NULL;
    for (size_t at = 0; at < count && written; at++)
        written = PEM_write_X509(file, authorities[at]->certificate) == 1;
    return end_file(file, written, fresh, path);
}
