#include "tls/tls_context.h"

#include "tls/tls_private.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* With forward secrecy and authenticated encryption. Of these AES first, which processors do by themselves. */
static const char ciphers_of_today[] = "ECDHE+AESGCM+AES128:ECDHE+AESGCM:ECDHE+CHACHA20";
static const char ciphersuites_of_today[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

/* How long a session may be resumed. Seconds. */
#define SESSION_LASTS 3600

/* ---- faults ---- */

/* Always false, for the caller to return. */
__attribute__((format(printf, 4, 5))) static bool wrong(struct tls_fault *fault, enum tls_setting setting,
                                                        const char *expected, const char *format, ...)
{
    va_list arguments;

    fault->setting = setting;
    fault->expected = expected;
    va_start(arguments, format);
    vsnprintf(fault->problem, sizeof fault->problem, format, arguments);
    va_end(arguments);
    ERR_clear_error();
    return false;
}

/* The same with what OpenSSL says. */
static bool wrong_to_openssl(struct tls_fault *fault, enum tls_setting setting, const char *expected, const char *what)
{
    char reason[120];

    tls_reason(reason, sizeof reason, "OpenSSL does not say why");
    return wrong(fault, setting, expected, "%s: %s", what, reason);
}

static bool is_readable(struct tls_fault *fault, enum tls_setting setting, const char *path, const char *expected)
{
    return access(path, R_OK) == 0 || wrong(fault, setting, expected, "cannot be read: %s", strerror(errno));
}

/* ---- certificates and keys ---- */

/* A passphrase would be asked for on the terminal. */
static int no_passphrase(char *text, int size, int writes, void *context)
{
    bool *asked = context;

    (void)text;
    (void)size;
    (void)writes;
    if (asked != NULL) {
        *asked = true;
    }
    return -1;
}

static int64_t seconds_of(const ASN1_TIME *time)
{
    struct tm parts;

    return ASN1_TIME_to_tm(time, &parts) == 1 ? (int64_t)timegm(&parts) : 0;
}

/* Of the certificate and those that are sent with it. */
static void note_times(struct tls_context *context)
{
    const X509 *own = SSL_CTX_get0_certificate(context->ssl);
    STACK_OF(X509) *chain = NULL;

    context->begins = seconds_of(X509_get0_notBefore(own));
    context->expires = seconds_of(X509_get0_notAfter(own));
    SSL_CTX_get0_chain_certs(context->ssl, &chain);
    for (int i = 0; chain != NULL && i < sk_X509_num(chain); i++) {
        int64_t expires = seconds_of(X509_get0_notAfter(sk_X509_value(chain, i)));
        context->expires = expires < context->expires ? expires : context->expires;
    }
}

static bool load_certificate(struct tls_context *context, const char *path, struct tls_fault *fault)
{
    static const char expected[] = "a file in PEM form with the certificate, and behind it those of its chain";

    if (!is_readable(fault, TLS_SETTING_CERTIFICATE, path, expected)) {
        return false;
    }
    if (SSL_CTX_use_certificate_chain_file(context->ssl, path) != 1) {
        return wrong_to_openssl(fault, TLS_SETTING_CERTIFICATE, expected, "holds no certificate that can be used");
    }
    note_times(context);
    return true;
}

static bool load_key(struct tls_context *context, const struct tls_settings *settings, struct tls_fault *fault)
{
    const enum tls_setting setting = TLS_SETTING_KEY;
    const char *path = *settings->key != '\0' ? settings->key : settings->certificate;
    static const char expected[] = "a file in PEM form with the private key of the certificate, without a passphrase";
    bool asked = false;

    if (!is_readable(fault, setting, path, expected)) {
        return false;
    }
    SSL_CTX_set_default_passwd_cb_userdata(context->ssl, &asked);
    /* The certificate is there already: a key of another one does not come in. */
    int taken = SSL_CTX_use_PrivateKey_file(context->ssl, path, SSL_FILETYPE_PEM);
    SSL_CTX_set_default_passwd_cb_userdata(context->ssl, NULL);
    if (taken == 1 && SSL_CTX_check_private_key(context->ssl) == 1) {
        return true;
    }
    unsigned long error = ERR_peek_error();
    if (*settings->key == '\0') {
        return wrong(fault, setting, expected,
                     "is not given, and the file of the certificate has no private key beside it");
    }
    if (asked) {
        return wrong(fault, setting, expected, "the private key wants a passphrase");
    }
    if (ERR_GET_REASON(error) == X509_R_KEY_VALUES_MISMATCH || ERR_GET_REASON(error) == X509_R_KEY_TYPE_MISMATCH) {
        return wrong(fault, setting, expected, "the private key is not that of the certificate");
    }
    return wrong_to_openssl(fault, setting, expected, "holds no private key that can be used");
}

static bool load_own(struct tls_context *context, const struct tls_settings *settings, struct tls_fault *fault)
{
    static const char beside[] = "the path of a certificate";

    if (*settings->certificate == '\0') {
        bool lacks = settings->is_server || *settings->key != '\0';
        return !lacks || wrong(fault, TLS_SETTING_CERTIFICATE, beside, "there is no certificate");
    }
    return load_certificate(context, settings->certificate, fault) && load_key(context, settings, fault);
}

/* ---- whom to trust ---- */

static bool is_directory(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Clients are told whose certificates are taken, so that they choose the right one. */
static bool name_authorities(struct tls_context *context, const char *path)
{
    STACK_OF(X509_NAME) *names = is_directory(path) ? sk_X509_NAME_new_null() : SSL_load_client_CA_file(path);

    if (names == NULL) {
        return false;
    }
    SSL_CTX_set_client_CA_list(context->ssl, names);
    return true;
}

static bool load_authorities(struct tls_context *context, const struct tls_settings *settings, struct tls_fault *fault)
{
    static const char expected[] = "a file in PEM form with certificates of authorities, or a directory of such";
    const char *path = settings->ca;

    if (*path == '\0') {
        return SSL_CTX_set_default_verify_paths(context->ssl) == 1 ||
               wrong_to_openssl(fault, TLS_SETTING_CA, expected, "the system's authorities cannot be loaded");
    }
    if (!is_readable(fault, TLS_SETTING_CA, path, expected)) {
        return false;
    }
    int loaded =
        is_directory(path) ? SSL_CTX_load_verify_dir(context->ssl, path) : SSL_CTX_load_verify_file(context->ssl, path);
    if (loaded != 1 || (settings->is_server && !name_authorities(context, path))) {
        return wrong_to_openssl(fault, TLS_SETTING_CA, expected, "holds no certificate that can be used");
    }
    return true;
}

/* There must be a list of each authority in a chain: without, nobody would know what it has revoked. */
static bool load_revoked(struct tls_context *context, const char *path, struct tls_fault *fault)
{
    static const char expected[] = "a file in PEM form with lists of revoked certificates";
    X509_STORE *store = SSL_CTX_get_cert_store(context->ssl);
    X509_LOOKUP *lookup;

    if (*path == '\0') {
        return true;
    }
    if (!is_readable(fault, TLS_SETTING_CRL, path, expected)) {
        return false;
    }
    lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
    if (lookup == NULL || X509_load_crl_file(lookup, path, X509_FILETYPE_PEM) < 1) {
        return wrong_to_openssl(fault, TLS_SETTING_CRL, expected, "holds no list that can be used");
    }
    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    return true;
}

/* What OpenSSL makes of a certificate when it first looks at it, it keeps, also that memory was too short for it: from
 * then on nobody whom this authority vouches for would be believed. So all is looked at before there are connections.
 * (Authorities of a directory are read when they are needed.) */
static void look_at_authorities(const struct tls_context *context)
{
    STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context->ssl));

    for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
        X509 *authority = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));
        if (authority != NULL) {
            (void)X509_check_purpose(authority, -1, 0);
        }
    }
}

static bool set_trust(struct tls_context *context, const struct tls_settings *settings, struct tls_fault *fault)
{
    bool asks =
        settings->is_server ? settings->client_certificates != TLS_CLIENT_CERTIFICATES_NONE : settings->verifies;
    int mode = !asks ? SSL_VERIFY_NONE : SSL_VERIFY_PEER;

    if (settings->is_server && settings->client_certificates == TLS_CLIENT_CERTIFICATES_REQUIRED) {
        mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    }
    SSL_CTX_set_verify(context->ssl, mode, NULL);
    if (!asks && *settings->ca == '\0') {
        return true;
    }
    if (settings->is_server && *settings->ca == '\0') {
        return wrong(fault, TLS_SETTING_CA, "the authorities whose certificates clients may have",
                     "certificates are asked of clients, and nobody is trusted to have given them");
    }
    if (!load_authorities(context, settings, fault) || !load_revoked(context, settings->crl, fault)) {
        return false;
    }
    look_at_authorities(context);
    return true;
}

/* ---- protocols and ciphers ---- */

static bool set_protocols(struct tls_context *context, const char *words, struct tls_fault *fault)
{
    static const char expected[] = "TLSv1.2, TLSv1.3 or both";
    bool has_2 = false, has_3 = false;

    for (const char *word = words; *word != '\0';) {
        size_t length = strcspn(word, " \t,");
        bool is_2 = length == 7 && strncasecmp(word, "TLSv1.2", length) == 0;
        bool is_3 = length == 7 && strncasecmp(word, "TLSv1.3", length) == 0;
        if (length > 0 && !is_2 && !is_3) {
            return wrong(fault, TLS_SETTING_PROTOCOLS, expected, "\"%.*s\" is not one of them", (int)length, word);
        }
        has_2 = has_2 || is_2;
        has_3 = has_3 || is_3;
        word += length;
        word += strspn(word, " \t,");
    }
    if (!has_2 && !has_3) {
        return wrong(fault, TLS_SETTING_PROTOCOLS, expected, "names no protocol");
    }
    SSL_CTX_set_min_proto_version(context->ssl, has_2 ? TLS1_2_VERSION : TLS1_3_VERSION);
    SSL_CTX_set_max_proto_version(context->ssl, has_3 ? TLS1_3_VERSION : TLS1_2_VERSION);
    return true;
}

/* Elliptic curves alone. OpenSSL would take ffdhe8192 as well, which costs it a hundred times what X25519 does, and the
 * client that asks for it next to nothing: a few of them would have the thread. */
static const char groups_of_today[] = "X25519:P-256:P-384:P-521";

static bool set_groups(struct tls_context *context, struct tls_fault *fault)
{
    return SSL_CTX_set1_groups_list(context->ssl, groups_of_today) == 1 ||
           wrong_to_openssl(fault, TLS_SETTING_CIPHERSUITES, groups_of_today, "OpenSSL lacks a group");
}

static bool set_ciphers(struct tls_context *context, const struct tls_settings *settings, struct tls_fault *fault)
{
    const char *ciphers = *settings->ciphers != '\0' ? settings->ciphers : ciphers_of_today;
    const char *suites = *settings->ciphersuites != '\0' ? settings->ciphersuites : ciphersuites_of_today;

    if (SSL_CTX_set_cipher_list(context->ssl, ciphers) != 1) {
        return wrong_to_openssl(fault, TLS_SETTING_CIPHERS, "a list as openssl ciphers takes it",
                                "there is no such cipher of TLSv1.2");
    }
    if (SSL_CTX_set_ciphersuites(context->ssl, suites) != 1) {
        return wrong_to_openssl(fault, TLS_SETTING_CIPHERSUITES,
                                "names such as TLS_AES_128_GCM_SHA256 with colons between",
                                "there is no such cipher of TLSv1.3");
    }
    return true;
}

/* ---- life ---- */

/* A session must not be resumed where other certificates are asked for. */
static bool name_sessions(SSL_CTX *ssl)
{
    unsigned char name[16];

    return RAND_bytes(name, sizeof name) == 1 && SSL_CTX_set_session_id_context(ssl, name, sizeof name) == 1;
}

static bool set_up(struct tls_context *context, const struct tls_settings *settings, struct tls_fault *fault)
{
    SSL_CTX_set_options(context->ssl, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                          SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    /* Memory for records is taken when there are some: most clients are idle. */
    SSL_CTX_set_mode(context->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_timeout(context->ssl, SESSION_LASTS);
    SSL_CTX_set_default_passwd_cb(context->ssl, no_passphrase);
    bool resumes = settings->is_server ? tls_ticket_use(context) : tls_ticket_keep_sessions(context);
    return resumes && name_sessions(context->ssl) && set_protocols(context, settings->protocols, fault) &&
           set_ciphers(context, settings, fault) && set_groups(context, fault) && load_own(context, settings, fault) &&
           set_trust(context, settings, fault);
}

struct tls_context *tls_context_new(const struct tls_settings *settings, struct tls_fault *fault)
{
    struct tls_context *context = calloc(1, sizeof *context);

    (void)wrong(fault, TLS_SETTING_CERTIFICATE, "memory", "there is no memory for TLS");
    if (context == NULL) {
        return NULL;
    }
    tls_algorithms_make();
    atomic_init(&context->holders, 1);
    pthread_mutex_init(&context->tickets.mutex, NULL);
    pthread_mutex_init(&context->sessions.mutex, NULL);
    context->is_server = settings->is_server;
    context->verifies = settings->verifies;
    context->has_own_ca = *settings->ca != '\0';
    context->server_name = strdup(settings->server_name);
    context->ssl = SSL_CTX_new(settings->is_server ? TLS_server_method() : TLS_client_method());
    if (context->server_name == NULL || context->ssl == NULL || !set_up(context, settings, fault)) {
        tls_context_release(context);
        return NULL;
    }
    return context;
}

struct tls_context *tls_context_hold(struct tls_context *context)
{
    if (context != NULL) {
        atomic_fetch_add_explicit(&context->holders, 1, memory_order_relaxed);
    }
    return context;
}

void tls_context_release(struct tls_context *context)
{
    if (context == NULL || atomic_fetch_sub_explicit(&context->holders, 1, memory_order_acq_rel) > 1) {
        return;
    }
    tls_ticket_free_sessions(&context->sessions);
    tls_ticket_free(&context->tickets);
    SSL_CTX_free(context->ssl);
    free(context->server_name);
    free(context);
}

/* ---- what is of no use ---- */

static bool has_passed(const ASN1_TIME *time)
{
    return time != NULL && X509_cmp_current_time(time) < 0;
}

/* What is wrong with it; NULL: nothing. */
static const char *doubt_authority(X509 *authority)
{
    if (X509_check_ca(authority) == 0) {
        return "is no authority: it vouches for nobody but itself";
    }
    return has_passed(X509_get0_notAfter(authority)) ? "has expired: nobody for whom it vouches is taken" : NULL;
}

bool tls_context_doubt(const struct tls_context *context, int *place, struct tls_fault *doubt)
{
    STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context->ssl));
    const X509_NAME *who = NULL;
    const char *what = NULL;
    char name[120];

    while (what == NULL && *place < sk_X509_OBJECT_num(objects)) {
        const X509_OBJECT *object = sk_X509_OBJECT_value(objects, (*place)++);
        X509 *authority = X509_OBJECT_get0_X509(object);
        const X509_CRL *list = X509_OBJECT_get0_X509_CRL(object);
        if (authority != NULL && context->has_own_ca) {
            what = doubt_authority(authority);
            who = X509_get_subject_name(authority);
        } else if (list != NULL && has_passed(X509_CRL_get0_nextUpdate(list))) {
            what = "has a list that was to be renewed by now: nobody for whom it vouches is taken";
            who = X509_CRL_get_issuer(list);
        }
        doubt->setting = authority != NULL ? TLS_SETTING_CA : TLS_SETTING_CRL;
    }
    if (what != NULL) {
        snprintf(doubt->problem, sizeof doubt->problem, "%s %s", X509_NAME_oneline(who, name, sizeof name), what);
    }
    return what != NULL;
}

int64_t tls_context_expires(const struct tls_context *context)
{
    return context->expires;
}

int64_t tls_context_begins(const struct tls_context *context)
{
    return context->begins;
}
