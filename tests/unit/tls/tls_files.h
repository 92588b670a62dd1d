/* Certificates and keys in files, made anew for each test. */
#ifndef HEADGATE_TEST_TLS_FILES_H
#define HEADGATE_TEST_TLS_FILES_H

#include "tls/tls.h"

#include <openssl/x509.h>

/* Certificates of one authority; paths of files. */
struct tls_files {
    char directory[64];
    char ca[96];
    EVP_PKEY *ca_key;
    X509 *ca_certificate;
};

/* What a certificate says. */
struct tls_subject {
    const char *name;        /* the CN … */
    int name_length;         /* … which may hold a NUL */
    const char *alternative; /* as openssl.cnf writes it: "DNS:localhost,IP:127.0.0.1"; NULL: none */
    long expires;            /* days from now */
    bool is_self_signed;
};

/* Path of a file with the certificate and its key. */
struct tls_identity {
    char path[96];
};

void tls_files_open(struct tls_files *files);
void tls_files_close(struct tls_files *files);
struct tls_identity tls_files_issue(struct tls_files *files, const char *file, struct tls_subject subject);
/* A certificate that is good for localhost. */
struct tls_identity tls_files_server(struct tls_files *files);

/* Settings by which nothing is given. */
struct tls_settings tls_files_settings(bool is_server);
/* A context that must load. */
struct tls_context *tls_files_context(const struct tls_settings *settings);

/* Both ends of a socket, with TLS. */
struct tls_pair {
    struct buffer_pool pool;
    struct tls_wire *wire;
    int fds[2];
    struct tls *server;
    struct tls *client;
};

/* The contexts are the caller's. host: that the client wants. */
void tls_pair_open(struct tls_pair *pair, struct tls_context *server, struct tls_context *client, const char *host);
/* Goes on until neither side can; whether both are open then. */
bool tls_pair_shake_hands(struct tls_pair *pair);
void tls_pair_close(struct tls_pair *pair);

#endif
