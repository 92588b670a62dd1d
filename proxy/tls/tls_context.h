/*
 * What connections with TLS have in common: certificate, key, whom to trust, protocols and ciphers, and what lets them
 * resume. Made of files when a configuration is loaded, never changed afterwards, shared by all threads, and freed with
 * the last of who holds it: connections that exist keep theirs when a reload brings another.
 */
#ifndef HEADGATE_TLS_CONTEXT_H
#define HEADGATE_TLS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether certificates are asked of clients. One that is given must be good either way. */
enum tls_client_certificates {
    TLS_CLIENT_CERTIFICATES_NONE,
    TLS_CLIENT_CERTIFICATES_OPTIONAL,
    TLS_CLIENT_CERTIFICATES_REQUIRED
};

/* Texts are "" where nothing was given. Paths are of files in PEM form. */
struct tls_settings {
    bool is_server;          /* towards clients; else towards a server */
    const char *certificate; /* with its chain */
    const char *key;         /* "": in the same file */
    const char *ca;          /* of a file or a directory; "" towards servers: the system's */
    const char *crl;         /* what was revoked; "": nobody is asked */
    enum tls_client_certificates client_certificates;
    bool verifies;            /* towards servers: their certificate, and its name */
    const char *server_name;  /* towards servers: the name in place of that of the address */
    const char *protocols;    /* some of TLSv1.2 and TLSv1.3, with blanks or commas between */
    const char *ciphers;      /* of TLSv1.2; "": those of today */
    const char *ciphersuites; /* of TLSv1.3; "": all three, AES first */
};

/* Which of the settings is wrong, and how. */
enum tls_setting {
    TLS_SETTING_CERTIFICATE,
    TLS_SETTING_KEY,
    TLS_SETTING_CA,
    TLS_SETTING_CRL,
    TLS_SETTING_PROTOCOLS,
    TLS_SETTING_CIPHERS,
    TLS_SETTING_CIPHERSUITES
};

struct tls_fault {
    enum tls_setting setting;
    char problem[200];
    const char *expected; /* a constant text */
};

struct tls_context;

/* Needs the settings within the call only. NULL: the fault says why. */
struct tls_context *tls_context_new(const struct tls_settings *settings, struct tls_fault *fault);
/* One more holds it; returns it. NULL is nothing to hold. From any thread, as are all of these. */
struct tls_context *tls_context_hold(struct tls_context *context);
void tls_context_release(struct tls_context *context);

/* What was loaded from the files of authorities and of lists, and is of no use now: the next one from *place on, which
 * is 0 at first; false: there is none. Of a directory nothing is loaded before it is needed. */
bool tls_context_doubt(const struct tls_context *context, int *place, struct tls_fault *doubt);

/* When the first certificate of its own, or of its chain, expires: seconds since 1970; 0: it has none. */
int64_t tls_context_expires(const struct tls_context *context);
/* When its own certificate begins to be good: seconds since 1970; 0: it has none. */
int64_t tls_context_begins(const struct tls_context *context);

#endif
