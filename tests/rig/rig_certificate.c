#include "rig_certificate.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#define DAY (24L * 60 * 60)

static bool add_extension(X509 *certificate, int kind, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, kind, value);
    bool added = extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

static bool fill(X509 *certificate, EVP_PKEY *key)
{
    static const unsigned char name[] = "127.0.0.1";
    X509_NAME *subject = X509_get_subject_name(certificate);
    return X509_set_version(certificate, X509_VERSION_3) == 1 &&
           ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) == 1 &&
           X509_gmtime_adj(X509_getm_notBefore(certificate), -DAY) != NULL &&
           X509_gmtime_adj(X509_getm_notAfter(certificate), 30 * DAY) != NULL &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, name, -1, -1, 0) == 1 &&
           X509_set_issuer_name(certificate, subject) == 1 && X509_set_pubkey(certificate, key) == 1 &&
           add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE") &&
           add_extension(certificate, NID_subject_alt_name, "IP:127.0.0.1") &&
           X509_sign(certificate, key, EVP_sha256()) > 0;
}

static bool write_files(X509 *certificate, EVP_PKEY *key, const char *certificate_path, const char *key_path)
{
    FILE *certificate_file = fopen(certificate_path, "w");
    FILE *key_file = fopen(key_path, "w");
    bool written = certificate_file != NULL && key_file != NULL && PEM_write_X509(certificate_file, certificate) == 1 &&
                   PEM_write_PrivateKey(key_file, key, NULL, NULL, 0, NULL, NULL) == 1;
    written = certificate_file != NULL && fclose(certificate_file) == 0 && written;
    return key_file != NULL && fclose(key_file) == 0 && written;
}

bool certificate_make(const char *certificate_path, const char *key_path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    bool made = key != NULL && certificate != NULL && fill(certificate, key) &&
                write_files(certificate, key, certificate_path, key_path);
    X509_free(certificate);
    EVP_PKEY_free(key);
    if (!made)
        fprintf(stderr, "%s: no certificate could be made\n", certificate_path);
    return made;
}
