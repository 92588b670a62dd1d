/*
 * How handshakes are shortened. Clients get tickets, sealed by keys that all threads share and that rotate: nobody who
 * learns today's keys can read what was said yesterday. Of servers the last session is kept.
 *
 * Who resumes shows no certificate, so the chain that the session was made with is kept with it, and is verified anew
 * as a full handshake would: on either side, and before the session is offered or taken. If it is not good any more, or
 * is not all there, the handshake is a full one.
 */
#include "tls/tls_private.h"

#include "base/clock.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <string.h>

/* A key seals for so long, and opens for as long again. */
#define KEY_LASTS_US ((int64_t)3600 * 1000000)
/* Of a session of TLS 1.3, tickets that the client gets. */
#define TICKETS 1
/* Of certificates between a client's and its authority, in a ticket: it goes over the wire, and has room for 65,280. */
#define CHAIN_MOST 8192

/* ---- certificates of sessions ---- */

/* Whether the certificate is good now, to the authorities, lists, name and use that a full handshake of ssl asks for.
 */
static bool is_good(SSL *ssl, X509 *certificate, STACK_OF(X509) * chain)
{
    X509_STORE *store = SSL_CTX_get_cert_store(SSL_get_SSL_CTX(ssl));
    X509_STORE_CTX *look = X509_STORE_CTX_new();

    ERR_set_mark();
    bool is = look != NULL && X509_STORE_CTX_init(look, store, certificate, chain) == 1 &&
              X509_STORE_CTX_set_default(look, SSL_is_server(ssl) ? "ssl_client" : "ssl_server") == 1;
    if (is) {
        X509_VERIFY_PARAM *parameters = X509_STORE_CTX_get0_param(look);
        X509_VERIFY_PARAM_set_auth_level(parameters, SSL_get_security_level(ssl));
        is = X509_VERIFY_PARAM_set1(parameters, SSL_get0_param(ssl)) == 1 && X509_verify_cert(look) == 1;
    }
    X509_STORE_CTX_free(look);
    ERR_pop_to_mark();
    return is;
}

/* ---- tickets for clients ---- */

static bool make_key(struct tls_ticket_key *key)
{
    return RAND_bytes(key->name, sizeof key->name) == 1 && RAND_priv_bytes(key->cipher, sizeof key->cipher) == 1 &&
           RAND_priv_bytes(key->mac, sizeof key->mac) == 1;
}

/* False: there is no key to be had. */
static bool rotate(struct tls_ticket_keys *keys)
{
    int64_t now_us = clock_now_us(), age_us = now_us - keys->made_us;

    if (keys->made_us != 0 && age_us < KEY_LASTS_US) {
        return true;
    }
    struct tls_ticket_key fresh;
    if (!make_key(&fresh)) {
        return false;
    }
    /* One that nobody has used for so long opens nothing any more. */
    bool is_young = keys->made_us != 0 && age_us < 2 * KEY_LASTS_US;
    if (is_young) {
        keys->keys[1] = keys->keys[0];
    } else if (!make_key(&keys->keys[1])) {
        return false;
    }
    keys->keys[0] = fresh;
    keys->made_us = now_us;
    OPENSSL_cleanse(&fresh, sizeof fresh);
    return true;
}

static bool use_key(const struct tls_ticket_key *key, const unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
                    int seals)
{
    char digest[] = "SHA256";
    unsigned char secret[sizeof key->mac];

    memcpy(secret, key->mac, sizeof secret);
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, secret, sizeof secret),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    bool used = EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->cipher, iv, seals) == 1 &&
                EVP_MAC_CTX_set_params(mac, parameters) == 1;
    OPENSSL_cleanse(secret, sizeof secret);
    return used;
}

/* The place of the key of that name; the count: it is none of them. */
static size_t find_key(const struct tls_ticket_keys *keys, const unsigned char *name)
{
    size_t place = 0;

    while (place < 2 && memcmp(keys->keys[place].name, name, sizeof keys->keys[place].name) != 0) {
        place++;
    }
    return place;
}

/* OpenSSL's callback: its results are 1 for done, 2 for "give a new one", 0 for "a full handshake", -1 for failed. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
                     int seals)
{
    struct tls_context *context = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    struct tls_ticket_keys *keys = &context->tickets;
    int result = 0;

    pthread_mutex_lock(&keys->mutex);
    if (!rotate(keys)) {
        result = -1;
    } else if (seals) {
        memcpy(name, keys->keys[0].name, sizeof keys->keys[0].name);
        bool is_used = RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) == 1 &&
                       use_key(&keys->keys[0], iv, cipher, mac, 1);
        result = is_used ? 1 : -1;
    } else {
        size_t place = find_key(keys, name);
        bool is_used = place < 2 && use_key(&keys->keys[place], iv, cipher, mac, 0);
        bool is_new = place == 0 && SSL_version(ssl) != TLS1_3_VERSION;
        result = !is_used ? 0 : is_new ? 1 : 2;
    }
    pthread_mutex_unlock(&keys->mutex);
    return result;
}

/* OpenSSL's callback, before a ticket is made. The certificate is in it; what stands between that and the authority is
 * added here, unless it is in there since an earlier session, or is too long. Always 1: a failure would be one of the
 * handshake. */
static int on_sealing(SSL *ssl, void *context)
{
    const STACK_OF(X509) *chain = SSL_get_peer_cert_chain(ssl);
    unsigned char data[CHAIN_MOST], *end = data;

    (void)context;
    for (int i = 0; chain != NULL && i < sk_X509_num(chain); i++) {
        int length = i2d_X509(sk_X509_value(chain, i), NULL);
        if (length <= 0 || length > data + sizeof data - end) {
            return 1;
        }
        (void)i2d_X509(sk_X509_value(chain, i), &end);
    }
    if (end > data) {
        (void)SSL_SESSION_set1_ticket_appdata(SSL_get_session(ssl), data, (size_t)(end - data));
    }
    return 1;
}

/* What on_sealing() has added; the caller frees it. NULL when memory is short. */
static STACK_OF(X509) * chain_of(SSL_SESSION *session)
{
    STACK_OF(X509) *chain = sk_X509_new_null();
    void *data = NULL;
    size_t length = 0;

    (void)SSL_SESSION_get0_ticket_appdata(session, &data, &length);
    for (const unsigned char *at = data, *start = at; chain != NULL && length > 0; start = at) {
        X509 *certificate = d2i_X509(NULL, &at, (long)length);
        if (certificate == NULL || sk_X509_push(chain, certificate) <= 0) {
            X509_free(certificate);
            break;
        }
        length -= (size_t)(at - start);
    }
    return chain;
}

/* Whether the client that has the session would be let in by a full handshake, too. */
static bool is_still_good(SSL *ssl, SSL_SESSION *session)
{
    X509 *certificate = SSL_SESSION_get0_peer(session);

    if (certificate == NULL) {
        return true;
    }
    STACK_OF(X509) *chain = chain_of(session);
    bool is = chain != NULL && is_good(ssl, certificate, chain);
    sk_X509_pop_free(chain, X509_free);
    return is;
}

/* OpenSSL's callback, for a ticket that on_ticket() has looked at. */
static SSL_TICKET_RETURN on_opened(SSL *ssl, SSL_SESSION *session, const unsigned char *name, size_t length,
                                   SSL_TICKET_STATUS status, void *context)
{
    struct tls_of_ssl *own = SSL_get_app_data(ssl);

    (void)name;
    (void)length;
    (void)context;
    /* A hello may have as many tickets as it has room for, and to verify a chain is dear: one of them is looked at. */
    if ((status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW) || own->has_opened_ticket ||
        !is_still_good(ssl, session)) {
        own->has_opened_ticket = true;
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    }
    own->has_opened_ticket = true;
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

bool tls_ticket_use(struct tls_context *context)
{
    /* All that is needed to resume is in the ticket. */
    SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context->ssl, TICKETS);
    SSL_CTX_set_tlsext_ticket_key_evp_cb(context->ssl, on_ticket);
    SSL_CTX_set_session_ticket_cb(context->ssl, on_sealing, on_opened, NULL);
    return SSL_CTX_set_app_data(context->ssl, context) == 1;
}

static void empty(STACK_OF(X509) * chain)
{
    while (chain != NULL && sk_X509_num(chain) > 0) {
        X509_free(sk_X509_pop(chain));
    }
}

/* OpenSSL lets nobody take the certificate out of a session; but one that is read over another takes its place. */
void tls_ticket_forget_peer(SSL *ssl)
{
    SSL_SESSION *session = SSL_get_session(ssl), *bare = SSL_SESSION_new();
    unsigned char *data = NULL;

    empty(SSL_get_peer_cert_chain(ssl));
    empty(SSL_get0_verified_chain(ssl));
    (void)SSL_SESSION_set1_ticket_appdata(session, NULL, 0);
    if (bare != NULL && SSL_SESSION_get_max_fragment_length(session) == TLSEXT_max_fragment_length_DISABLED &&
        SSL_SESSION_set_cipher(bare, SSL_SESSION_get0_cipher(session)) == 1 &&
        SSL_SESSION_set_protocol_version(bare, SSL_version(ssl)) == 1 &&
        SSL_SESSION_set1_hostname(bare, SSL_SESSION_get0_hostname(session)) == 1) {
        int length = i2d_SSL_SESSION(bare, &data);
        const unsigned char *at = data;
        (void)(length > 0 && d2i_SSL_SESSION(&session, &at, length) != NULL);
    }
    OPENSSL_free(data);
    SSL_SESSION_free(bare);
    ERR_clear_error();
}

void tls_ticket_free(struct tls_ticket_keys *keys)
{
    OPENSSL_cleanse(keys->keys, sizeof keys->keys);
    pthread_mutex_destroy(&keys->mutex);
}

/* ---- sessions with servers ---- */

static bool is_of(const struct tls_kept_session *kept, const struct sockaddr_storage *address, socklen_t length)
{
    return kept->length == length && memcmp(&kept->address, address, length) == 0;
}

static struct tls_kept_session *find_session(struct tls_sessions *sessions, const struct sockaddr_storage *address,
                                             socklen_t length)
{
    for (size_t i = 0; i < TLS_SESSIONS_MAX; i++) {
        if (sessions->items[i].length > 0 && is_of(&sessions->items[i], address, length)) {
            return &sessions->items[i];
        }
    }
    return NULL;
}

static bool find_server(int fd, struct sockaddr_storage *address, socklen_t *length)
{
    *address = (struct sockaddr_storage){0};
    *length = sizeof *address;
    return getpeername(fd, (struct sockaddr *)address, length) == 0 && *length > 0 && *length <= sizeof *address;
}

/* OpenSSL's callback: 1 if the session is ours now. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct tls_context *context = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    struct tls_sessions *sessions = &context->sessions;
    struct sockaddr_storage address;
    socklen_t length;
    const struct tls_of_ssl *own = SSL_get_app_data(ssl);

    if (!find_server(own->fd, &address, &length)) {
        return 0;
    }
    pthread_mutex_lock(&sessions->mutex);
    struct tls_kept_session *kept = find_session(sessions, &address, length);
    if (kept == NULL) {
        kept = &sessions->items[sessions->next];
        sessions->next = (sessions->next + 1) % TLS_SESSIONS_MAX;
    }
    SSL_SESSION_free(kept->session);
    *kept = (struct tls_kept_session){.address = address, .length = length, .session = session};
    pthread_mutex_unlock(&sessions->mutex);
    return 1;
}

bool tls_ticket_keep_sessions(struct tls_context *context)
{
    SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context->ssl, on_session);
    return SSL_CTX_set_app_data(context->ssl, context) == 1;
}

void tls_ticket_free_sessions(struct tls_sessions *sessions)
{
    for (size_t i = 0; i < TLS_SESSIONS_MAX; i++) {
        SSL_SESSION_free(sessions->items[i].session);
    }
    pthread_mutex_destroy(&sessions->mutex);
}

/* A copy, as OpenSSL changes sessions of connections that fail, and other threads may use the same one. Of another host
 * at the same address it is not taken either. */
void tls_ticket_resume(struct tls_context *context, SSL *ssl, int fd)
{
    struct tls_sessions *sessions = &context->sessions;
    struct sockaddr_storage address;
    socklen_t length;
    SSL_SESSION *copy = NULL;

    if (!find_server(fd, &address, &length)) {
        return;
    }
    pthread_mutex_lock(&sessions->mutex);
    const struct tls_kept_session *kept = find_session(sessions, &address, length);
    if (kept != NULL && SSL_SESSION_is_resumable(kept->session)) {
        copy = SSL_SESSION_dup(kept->session);
    }
    pthread_mutex_unlock(&sessions->mutex);
    if (copy != NULL && SSL_set_session(ssl, copy) == 1 && context->verifies &&
        !is_good(ssl, SSL_SESSION_get0_peer(copy), SSL_get_peer_cert_chain(ssl))) {
        (void)SSL_set_session(ssl, NULL);
    }
    SSL_SESSION_free(copy);
}
