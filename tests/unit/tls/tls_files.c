#include "tls_files.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DAY_SECONDS (24L * 3600)

static X509 *make(const struct tls_subject *subject, EVP_PKEY *key, EVP_PKEY *signer, X509 *issuer, bool is_authority)
{
    X509 *certificate = X509_new();
    X509_NAME *name = X509_get_subject_name(certificate);

    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), (long)(uintptr_t)certificate & 0xffffff);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), subject->expires * DAY_SECONDS);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)subject->name, subject->name_length,
                               -1, 0);
    X509_set_issuer_name(certificate, issuer != NULL ? X509_get_subject_name(issuer) : name);
    if (subject->alternative != NULL || is_authority) {
        X509V3_CTX context;
        X509V3_set_ctx(&context, issuer != NULL ? issuer : certificate, certificate, NULL, NULL, 0);
        X509_EXTENSION *extension =
            X509V3_EXT_conf_nid(NULL, &context, is_authority ? NID_basic_constraints : NID_subject_alt_name,
                                is_authority ? "critical,CA:TRUE" : subject->alternative);
        cr_assert_not_null(extension);
        X509_add_ext(certificate, extension, -1);
        X509_EXTENSION_free(extension);
    }
    cr_assert_gt(X509_sign(certificate, signer, EVP_sha256()), 0);
    return certificate;
}

void tls_files_open(struct tls_files *files)
{
    const struct tls_subject subject = {.name = "Test CA", .name_length = -1, .expires = 100};

    strcpy(files->directory, "/tmp/headgate-test-XXXXXX");
    cr_assert_not_null(mkdtemp(files->directory));
    snprintf(files->ca, sizeof files->ca, "%s/ca.pem", files->directory);
    files->ca_key = EVP_EC_gen("P-256");
    files->ca_certificate = make(&subject, files->ca_key, files->ca_key, NULL, true);
    FILE *out = fopen(files->ca, "w");
    cr_assert_eq(PEM_write_X509(out, files->ca_certificate), 1);
    fclose(out);
}

void tls_files_close(struct tls_files *files)
{
    DIR *directory = opendir(files->directory);

    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    }
    closedir(directory);
    rmdir(files->directory);
    EVP_PKEY_free(files->ca_key);
    X509_free(files->ca_certificate);
}

struct tls_identity tls_files_issue(struct tls_files *files, const char *file, struct tls_subject subject)
{
    struct tls_identity identity;
    EVP_PKEY *key = EVP_EC_gen("P-256");

    subject.expires = subject.expires != 0 ? subject.expires : 50;
    X509 *certificate = make(&subject, key, subject.is_self_signed ? key : files->ca_key,
                             subject.is_self_signed ? NULL : files->ca_certificate, false);
    snprintf(identity.path, sizeof identity.path, "%s/%s", files->directory, file);
    FILE *out = fopen(identity.path, "w");
    cr_assert_eq(PEM_write_X509(out, certificate), 1);
    cr_assert_eq(PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(out);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return identity;
}

struct tls_identity tls_files_server(struct tls_files *files)
{
    return tls_files_issue(
        files, "server.pem",
        (struct tls_subject){.name = "server", .name_length = -1, .alternative = "DNS:localhost,IP:127.0.0.1"});
}

struct tls_settings tls_files_settings(bool is_server)
{
    return (struct tls_settings){
        .is_server = is_server,
        .certificate = "",
        .key = "",
        .ca = "",
        .crl = "",
        .verifies = true,
        .server_name = "",
        .protocols = "TLSv1.2 TLSv1.3",
        .ciphers = "",
        .ciphersuites = "",
    };
}

struct tls_context *tls_files_context(const struct tls_settings *settings)
{
    struct tls_fault fault;
    struct tls_context *context = tls_context_new(settings, &fault);

    cr_assert_not_null(context, "%s", fault.problem);
    return context;
}

void tls_pair_open(struct tls_pair *pair, struct tls_context *server, struct tls_context *client, const char *host)
{
    memset(pair, 0, sizeof *pair);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->fds), 0);
    pair->wire = tls_wire_new(&pair->pool);
    pair->server = tls_new(server, pair->wire, pair->fds[0], NULL);
    pair->client = tls_new(client, pair->wire, pair->fds[1], host);
    cr_assert(pair->server != NULL && pair->client != NULL);
}

bool tls_pair_shake_hands(struct tls_pair *pair)
{
    for (int i = 0; i < 10; i++) {
        (void)tls_handshake(pair->client);
        (void)tls_handshake(pair->server);
    }
    return tls_state(pair->client) == TLS_OPEN && tls_state(pair->server) == TLS_OPEN;
}

void tls_pair_close(struct tls_pair *pair)
{
    tls_free(pair->server);
    tls_free(pair->client);
    close(pair->fds[0]);
    close(pair->fds[1]);
    tls_wire_free(pair->wire);
    buffer_pool_free(&pair->pool);
}
