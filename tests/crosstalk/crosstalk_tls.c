#include "crosstalk_tls.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>

static bool load_certificate(SSL_CTX *context, const char *certificate_path, const char *key_path)
{
    return certificate_path == NULL ||
           (SSL_CTX_use_certificate_file(context, certificate_path, SSL_FILETYPE_PEM) == 1 &&
            SSL_CTX_use_PrivateKey_file(context, key_path, SSL_FILETYPE_PEM) == 1);
}

SSL_CTX *tls_context_new(const char *ca_path, const char *certificate_path, const char *key_path)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL || SSL_CTX_load_verify_file(context, ca_path) != 1 ||
        !load_certificate(context, certificate_path, key_path)) {
        SSL_CTX_free(context);
        return NULL;
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    /* What is to be sent lies in a buffer that grows and moves. */
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return context;
}

SSL *tls_start(SSL_CTX *context, int fd, SSL_SESSION *session)
{
    SSL *tls = SSL_new(context);
    if (tls == NULL || SSL_set_fd(tls, fd) != 1 || SSL_set1_host(tls, "127.0.0.1") != 1) {
        SSL_free(tls);
        return NULL;
    }
    if (session != NULL)
        SSL_set_session(tls, session);
    SSL_set_connect_state(tls);
    return tls;
}

/* What the system would have said of such a result. */
static ssize_t outcome(const SSL *tls, int result)
{
    switch (SSL_get_error(tls, result)) {
    case SSL_ERROR_NONE:
        return result;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        errno = ECONNRESET;
        return -1;
    }
}

ssize_t tls_send(SSL *tls, const void *data, size_t length)
{
    ERR_clear_error();
    return outcome(tls, SSL_write(tls, data, length < INT_MAX ? (int)length : INT_MAX));
}

ssize_t tls_recv(SSL *tls, void *room, size_t size)
{
    ERR_clear_error();
    return outcome(tls, SSL_read(tls, room, size < INT_MAX ? (int)size : INT_MAX));
}

void tls_end_output(SSL *tls)
{
    ERR_clear_error();
    (void)SSL_shutdown(tls);
}

SSL_SESSION *tls_end(SSL *tls)
{
    SSL_SESSION *session = SSL_get1_session(tls);
    if (session != NULL && !SSL_SESSION_is_resumable(session)) {
        SSL_SESSION_free(session);
        session = NULL;
    }
    /* OpenSSL does not resume what did not end as agreed, but how a connection ends is chosen by chance here. */
    SSL_set_shutdown(tls, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(tls);
    return session;
}
