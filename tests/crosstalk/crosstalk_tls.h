/* A client's end of TLS over a socket that does not block. Session by session it resumes what it had. */
#ifndef CROSSTALK_TLS_H
#define CROSSTALK_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* For all clients; it trusts the authorities in that file alone. certificate_path: what is shown; NULL: nothing. NULL:
 * none could be made. */
SSL_CTX *tls_context_new(const char *ca_path, const char *certificate_path, const char *key_path);

/* A connection over the socket, whose handshake is done by the calls below as the socket can bear it. session: to be
 * resumed, or NULL. */
SSL *tls_start(SSL_CTX *context, int fd, SSL_SESSION *session);

/* As send() and recv(); EAGAIN while the handshake lasts. */
ssize_t tls_send(SSL *tls, const void *data, size_t length);
ssize_t tls_recv(SSL *tls, void *room, size_t size);

/* Says that nothing more will be sent; replies are still read. */
void tls_end_output(SSL *tls);

/* Frees the connection, and tells what may be resumed later, or NULL. The socket is left open. */
SSL_SESSION *tls_end(SSL *tls);

#endif
