#include "tls/tls.h"

#include "tls/tls_private.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A whole record, or a flight of a handshake, whatever room there is for what it says. Bytes. */
#define READ_LEAST ((size_t)20 * 1024)
/* What one record says at most. */
#define RECORD_MOST ((size_t)16 * 1024)
/* Steps that a connection which is open may take in one read beside its data: of new keys, each of which takes several,
 * and of alerts. Each costs the thread some µs, and who asks for them much less. */
#define STEPS_MOST 128
/* What may wait for the socket, much of it behind what tls_write() leaves there: answers to new keys that are not
 * read. */
#define OUT_MOST (2 * TLS_OUT_SIZE)
/* The first byte of every connection with TLS. */
#define RECORD_OF_HANDSHAKE 0x16

struct tls {
    SSL *ssl; /* NULL before the first step */
    struct tls_context *context;
    struct tls_wire *wire;
    struct tls_of_ssl own; /* what OpenSSL's callbacks are told */
    enum tls_state state;
    enum tls_failure failure;
    bool is_server;
    bool was_heard;    /* something has come */
    bool has_ended;    /* the stream has … */
    bool has_closed;   /* … after the other side has said so */
    bool ends;         /* our stream is to be ended when what waits is written */
    bool is_shut;      /* that is done */
    bool owes;         /* one byte of the plain ones counts as not written yet */
    unsigned steps;    /* beside data, of this read */
    struct buffer in;  /* sealed: read from the socket, and not opened yet */
    struct buffer out; /* sealed: not taken by the socket */
    char *carried;     /* what was in `in`, between two threads; NULL: nothing */
    size_t carried_length;
    struct tls_names *names;
    char *host; /* of a server; NULL: nobody looks at the name */
    char *why;
};

/* ---- life ---- */

/* The name without what a certificate would not have: the dot at its end, the interface of an address. NULL when memory
 * is short. */
static char *bare_host(const char *host)
{
    size_t length = strcspn(host, "%");

    if (length > 1 && host[length - 1] == '.') {
        length--;
    }
    return strndup(host, length);
}

static bool is_address(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* The name that a server is called by, and is to have a certificate of. False: there is none, and one is needed, or
 * memory is short. */
static bool note_host(struct tls *tls, const char *host)
{
    const char *name = *tls->context->server_name != '\0' ? tls->context->server_name : host;

    if (name == NULL) {
        return !tls->context->verifies;
    }
    tls->host = bare_host(name);
    return tls->host != NULL;
}

/* Servers are told by which name they are called, and are to show a certificate with it among its alternative names: a
 * CN, which is no name of a host (RFC 6125), is never looked at. */
static bool expect_host(struct tls *tls)
{
    X509_VERIFY_PARAM *parameters = SSL_get0_param(tls->ssl);
    bool verifies = tls->context->verifies;

    if (tls->host == NULL) {
        return true;
    }
    X509_VERIFY_PARAM_set_hostflags(parameters,
                                    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    if (is_address(tls->host)) {
        return !verifies || X509_VERIFY_PARAM_set1_ip_asc(parameters, tls->host) == 1;
    }
    return SSL_set_tlsext_host_name(tls->ssl, tls->host) == 1 &&
           (!verifies || X509_VERIFY_PARAM_set1_host(parameters, tls->host, 0) == 1);
}

static bool set_up(struct tls *tls)
{
    BIO *bio = tls_wire_bio(tls->wire);

    tls->ssl = bio != NULL ? SSL_new(tls->context->ssl) : NULL;
    if (tls->ssl == NULL) {
        BIO_free(bio);
        return false;
    }
    SSL_set_bio(tls->ssl, bio, bio);
    if (SSL_set_app_data(tls->ssl, &tls->own) != 1) {
        return false;
    }
    if (tls->is_server) {
        SSL_set_accept_state(tls->ssl);
        return true;
    }
    SSL_set_connect_state(tls->ssl);
    if (!expect_host(tls)) {
        return false;
    }
    tls_ticket_resume(tls->context, tls->ssl, tls->own.fd);
    return true;
}

struct tls *tls_new(struct tls_context *context, struct tls_wire *wire, int fd, const char *host)
{
    struct tls *tls = calloc(1, sizeof *tls);

    if (tls == NULL) {
        return NULL;
    }
    tls->context = tls_context_hold(context);
    tls->wire = wire;
    tls->own.fd = fd;
    tls->is_server = context->is_server;
    if (!tls->is_server && !note_host(tls, host)) {
        tls_free(tls);
        return NULL;
    }
    return tls;
}

/* ---- from thread to thread ---- */

void tls_detach(struct tls *tls)
{
    size_t length = buffer_length(&tls->in);

    assert(tls->state == TLS_FAILED || !tls_wants_write(tls));
    if (length > 0) {
        /* Its memory is the pool's, which stays. */
        tls->carried = malloc(length);
        tls->carried_length = length;
        if (tls->carried != NULL) {
            memcpy(tls->carried, buffer_head(&tls->in), length);
        } else {
            tls_fail(tls, TLS_FAILURE_OTHER, "out of memory");
        }
    }
    buffer_clear(tls->wire->pool, &tls->in);
    buffer_clear(tls->wire->pool, &tls->out);
    tls->wire = NULL;
}

void tls_attach(struct tls *tls, struct tls_wire *wire)
{
    tls->wire = wire;
    if (tls->ssl != NULL) {
        BIO_set_data(SSL_get_rbio(tls->ssl), wire);
    }
    if (tls->carried != NULL && !buffer_append(wire->pool, &tls->in, tls->carried, tls->carried_length)) {
        tls_fail(tls, TLS_FAILURE_OTHER, "out of memory");
    }
    free(tls->carried);
    tls->carried = NULL;
}

static void say_end(struct tls *tls)
{
    if (tls->ssl != NULL && tls->state == TLS_OPEN && (SSL_get_shutdown(tls->ssl) & SSL_SENT_SHUTDOWN) == 0) {
        (void)SSL_shutdown(tls->ssl);
        ERR_clear_error();
        (void)tls_flush(tls);
    }
}

void tls_free(struct tls *tls)
{
    if (tls == NULL) {
        return;
    }
    say_end(tls);
    SSL_free(tls->ssl);
    buffer_clear(tls->wire->pool, &tls->in);
    buffer_clear(tls->wire->pool, &tls->out);
    tls_context_release(tls->context);
    tls_names_free(tls->names);
    free(tls->host);
    free(tls->why);
    free(tls);
}

/* ---- failures ---- */

void tls_fail(struct tls *tls, enum tls_failure failure, const char *why)
{
    if (tls->state != TLS_FAILED) {
        tls->state = TLS_FAILED;
        tls->failure = failure;
        tls->why = strdup(why);
    }
}

const char *tls_why(const struct tls *tls)
{
    return tls->why != NULL ? tls->why : "TLS has failed";
}

enum tls_failure tls_failure(const struct tls *tls)
{
    return tls->failure;
}

static void fail_by_certificate(struct tls *tls, long verdict)
{
    const char *text = X509_verify_cert_error_string(verdict);
    bool is_name = verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH;
    char why[400];

    if (is_name) {
        snprintf(why, sizeof why, "its certificate is not valid for %s: %s%s", tls->host, text,
                 verdict == X509_V_ERR_HOSTNAME_MISMATCH ? " (its alternative names count, its CN does not)" : "");
    } else {
        snprintf(why, sizeof why, "its certificate is not good: %s", text);
    }
    ERR_clear_error();
    tls_fail(tls, TLS_FAILURE_CERTIFICATE, why);
}

/* Alerts by which the other side says that it does not like our certificate, or that there is none. */
static bool is_of_certificate(int reason)
{
    return reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE || reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED ||
           reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE || reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED ||
           reason == SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED || reason == SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN ||
           reason == SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE || reason == SSL_R_TLSV1_ALERT_UNKNOWN_CA ||
           reason == SSL_R_SSLV3_ALERT_NO_CERTIFICATE;
}

/* OpenSSL has given up. A signature that is not the authority's has it complain before it says what of. */
static void fail_by_openssl(struct tls *tls)
{
    unsigned long error = ERR_peek_error(), last = ERR_peek_last_error();
    long verdict = SSL_get_verify_result(tls->ssl);
    bool is_certificate = ERR_GET_LIB(error) == ERR_LIB_SSL && is_of_certificate(ERR_GET_REASON(error));
    char why[200];

    if (ERR_GET_LIB(last) == ERR_LIB_SSL && ERR_GET_REASON(last) == SSL_R_CERTIFICATE_VERIFY_FAILED &&
        verdict != X509_V_OK) {
        fail_by_certificate(tls, verdict);
        return;
    }
    tls_reason(why, sizeof why, "OpenSSL does not say why");
    tls_fail(tls, is_certificate ? TLS_FAILURE_CERTIFICATE : TLS_FAILURE_OTHER, why);
}

static void fail_by_system(struct tls *tls, int error)
{
    tls_fail(tls, TLS_FAILURE_OTHER, strerror(error));
}

/* ---- the socket ---- */

static bool is_passing(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* What is read from the socket for so much room. What was opened of it, and of a record that had begun before, is to
 * fit: what does not would be kept by a copy, and need another turn of the event loop. */
static size_t wanted_for(size_t room)
{
    size_t wanted = room > READ_LEAST + RECORD_MOST ? room - RECORD_MOST : READ_LEAST;

    return wanted < TLS_IN_SIZE ? wanted : TLS_IN_SIZE;
}

/* Has OpenSSL see what was left of the last read, else what the socket has. False: the socket is broken. */
static bool bring_in(struct tls *tls, size_t room)
{
    struct tls_wire *wire = tls->wire;

    /* What is left of one connection would go to another. */
    assert(wire->out_length == 0);
    wire->in = buffer_head(&tls->in);
    wire->in_length = buffer_length(&tls->in);
    if (wire->in_length > 0 || tls->has_ended || tls->has_closed) {
        return true;
    }
    ssize_t got = recv(tls->own.fd, wire->in_memory, wanted_for(room), 0);
    if (got < 0) {
        return is_passing(errno);
    }
    tls->has_ended = got == 0;
    tls->was_heard = tls->was_heard || got > 0;
    wire->in = wire->in_memory;
    wire->in_length = (size_t)got;
    return true;
}

/* What OpenSSL has not taken is kept. */
static void put_back(struct tls *tls)
{
    struct tls_wire *wire = tls->wire;
    size_t kept = buffer_length(&tls->in);

    if (kept > 0) {
        buffer_consume(wire->pool, &tls->in, kept - wire->in_length);
    } else if (wire->in_length > 0 && !buffer_append(wire->pool, &tls->in, wire->in, wire->in_length)) {
        tls_fail(tls, TLS_FAILURE_OTHER, "out of memory");
    }
    wire->in_length = 0;
}

static void end_if_written(struct tls *tls)
{
    if (tls->ends && buffer_length(&tls->out) == 0) {
        shutdown(tls->own.fd, SHUT_WR);
        tls->ends = false;
        tls->is_shut = true;
    }
}

/* Writes what OpenSSL has made, behind what waits; the rest waits then. False: the socket is broken, with errno set. */
bool tls_flush(struct tls *tls)
{
    struct tls_wire *wire = tls->wire;
    bool is_direct = buffer_length(&tls->out) == 0, is_kept = true;
    size_t length = wire->out_length;

    wire->out_length = 0;
    if (tls->is_shut) {
        /* The answer to new keys, which nobody waits for: what comes is still read. */
        return true;
    }
    if (!is_direct && length > 0) {
        is_kept = buffer_append(wire->pool, &tls->out, wire->out, length);
    }
    const char *data = is_direct ? wire->out : buffer_head(&tls->out);
    size_t waiting = is_direct ? length : buffer_length(&tls->out);
    ssize_t done = waiting > 0 ? send(tls->own.fd, data, waiting, MSG_NOSIGNAL) : 0;
    if (done < 0 && !is_passing(errno)) {
        return false;
    }
    size_t written = done > 0 ? (size_t)done : 0;
    if (!is_direct) {
        buffer_consume(wire->pool, &tls->out, written);
    } else if (written < waiting) {
        is_kept = buffer_append(wire->pool, &tls->out, data + written, waiting - written);
    }
    end_if_written(tls);
    errno = ENOMEM;
    return is_kept;
}

bool tls_wants_write(const struct tls *tls)
{
    return buffer_length(&tls->out) > 0;
}

/* ---- the handshake ---- */

/* OpenSSL's callback, for all but data. It goes on within one call as long as there is something to go on with. */
static void on_step(const SSL *ssl, int where, int result)
{
    struct tls *tls = (struct tls *)(void *)((char *)SSL_get_app_data(ssl) - offsetof(struct tls, own));

    (void)where;
    (void)result;
    tls->steps++;
    if (tls->steps > STEPS_MOST) {
        tls->wire->in_length = 0;
    }
}

/* Of a client's certificate the names are all that is needed from now on. */
static void note_client(struct tls *tls)
{
    const X509 *certificate = SSL_get0_peer_certificate(tls->ssl);
    bool has_too_many;

    if (certificate == NULL || SSL_get_verify_result(tls->ssl) != X509_V_OK) {
        return;
    }
    tls->names = tls_names_of(certificate, &has_too_many);
    if (tls->names == NULL && has_too_many) {
        tls_fail(tls, TLS_FAILURE_CERTIFICATE, "its certificate has more than 64 alternative names");
    } else if (tls->names == NULL) {
        tls_fail(tls, TLS_FAILURE_OTHER, "out of memory");
    }
    tls_ticket_forget_peer(tls->ssl);
}

static void now_open(struct tls *tls)
{
    tls->state = TLS_OPEN;
    SSL_set_info_callback(tls->ssl, on_step);
    if (tls->is_server) {
        note_client(tls);
    }
}

static void fail_by_end(struct tls *tls)
{
    if (tls->was_heard) {
        tls_fail(tls, TLS_FAILURE_OTHER, "it closed the connection within the handshake");
    } else {
        tls_fail(tls, TLS_FAILURE_SILENT, "it closed the connection before the handshake");
    }
}

/* Plain text, which OpenSSL would call a wrong version. */
static bool speaks_no_tls(const struct tls *tls)
{
    const struct tls_wire *wire = tls->wire;

    return wire->in_length > 0 && wire->in[0] != RECORD_OF_HANDSHAKE && wire->in[0] != SSL3_RT_ALERT;
}

static const char *what_begins_so(const char *data, size_t length)
{
    static const struct {
        const char *start;
        const char *hint;
    } known[] = {
        {"*", ", as of Redis without TLS"},
        {"+", ", as of Redis without TLS"},
        {"-", ", as of Redis without TLS"},
        {"PROXY ", ", as of a PROXY header: proxy_protocol = required would have it"},
        {"\r\n\r\n", ", as of a PROXY header: proxy_protocol = required would have it"},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t start_length = strlen(known[i].start);
        if (length >= start_length && memcmp(data, known[i].start, start_length) == 0) {
            return known[i].hint;
        }
    }
    return "";
}

static void fail_by_plain_text(struct tls *tls)
{
    char why[160];

    snprintf(why, sizeof why, "it speaks no TLS: its first byte is 0x%02x%s", (unsigned char)tls->wire->in[0],
             what_begins_so(tls->wire->in, tls->wire->in_length));
    tls->wire->in_length = 0;
    tls_fail(tls, TLS_FAILURE_PLAIN, why);
}

static void go_on(struct tls *tls)
{
    int done = SSL_do_handshake(tls->ssl);
    int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, done);

    put_back(tls);
    if (error == SSL_ERROR_NONE) {
        now_open(tls);
    } else if (error != SSL_ERROR_WANT_READ) {
        fail_by_openssl(tls);
    } else if (tls->has_ended) {
        fail_by_end(tls);
    }
    if (!tls_flush(tls)) {
        fail_by_system(tls, errno);
    }
}

enum tls_state tls_handshake(struct tls *tls)
{
    bool was_heard = tls->was_heard;

    if (tls->state != TLS_HANDSHAKE) {
        return tls->state;
    }
    if (tls->ssl == NULL && !set_up(tls)) {
        ERR_clear_error();
        tls_fail(tls, TLS_FAILURE_OTHER, "out of memory, or the name is none that a certificate could have");
    } else if (!bring_in(tls, 0)) {
        fail_by_system(tls, errno);
    } else if (!was_heard && speaks_no_tls(tls)) {
        fail_by_plain_text(tls);
    } else {
        go_on(tls);
    }
    return tls->state;
}

enum tls_state tls_state(const struct tls *tls)
{
    return tls->state;
}

bool tls_is_resumed(const struct tls *tls)
{
    return SSL_session_reused(tls->ssl) == 1;
}

const char *tls_server_name(const struct tls *tls)
{
    return SSL_get_servername(tls->ssl, TLSEXT_NAMETYPE_host_name);
}

const struct tls_names *tls_names(const struct tls *tls)
{
    return tls->names;
}

/* ---- reading ---- */

/* What a call of SSL_read_ex() that gave nothing says. */
static void judge(struct tls *tls)
{
    int error = SSL_get_error(tls->ssl, 0);

    if (error == SSL_ERROR_ZERO_RETURN) {
        tls->has_closed = true;
    } else if (error != SSL_ERROR_WANT_READ) {
        fail_by_openssl(tls);
    }
}

/* The other side may make work, and answers that it does not read, without data that anybody above would count. */
static void fail_by_storm(struct tls *tls)
{
    if (tls->steps > STEPS_MOST) {
        tls_fail(tls, TLS_FAILURE_OTHER, "it asks for new keys, or the like, without a pause");
    } else if (buffer_length(&tls->out) > OUT_MOST) {
        tls_fail(tls, TLS_FAILURE_OTHER, "it does not read the answers to new keys, or the like");
    }
}

/* Opens as many records as there are, and room for. */
static size_t open_records(struct tls *tls, char *data, size_t size)
{
    size_t got = 0, length = 1;

    while (got < size && length > 0 && (tls->wire->in_length > 0 || SSL_pending(tls->ssl) > 0)) {
        length = 0;
        if (SSL_read_ex(tls->ssl, data + got, size - got, &length) != 1) {
            judge(tls);
            length = 0;
        }
        got += length;
    }
    return got;
}

ssize_t tls_read(struct tls *tls, char *data, size_t size)
{
    if (tls->state != TLS_OPEN) {
        return tls->state == TLS_FAILED ? TLS_BROKEN : TLS_AGAIN;
    }
    if (!bring_in(tls, size)) {
        fail_by_system(tls, errno);
        return TLS_BROKEN;
    }
    tls->steps = 0;
    size_t got = open_records(tls, data, size);
    put_back(tls);
    if (tls->wire->out_length > 0 && !tls_flush(tls)) {
        fail_by_system(tls, errno);
    }
    fail_by_storm(tls);
    if (got > 0) {
        return (ssize_t)got;
    }
    return tls->state == TLS_FAILED ? TLS_BROKEN : tls->has_closed || tls->has_ended ? 0 : TLS_AGAIN;
}

bool tls_has_input(const struct tls *tls)
{
    return buffer_length(&tls->in) > 0 || (tls->state == TLS_OPEN && SSL_pending(tls->ssl) > 0) || tls->has_closed ||
           tls->has_ended || tls->state == TLS_FAILED;
}

bool tls_is_truncated(const struct tls *tls)
{
    return tls->has_ended && !tls->has_closed;
}

/* ---- writing ---- */

/* A server that does not take our certificate says so and is gone: it may be that this was not read yet. */
static void fail_by_write(struct tls *tls, int error)
{
    char lost[256];

    if (!tls->is_server && bring_in(tls, 0)) {
        (void)open_records(tls, lost, sizeof lost);
        put_back(tls);
        tls->wire->out_length = 0;
    }
    fail_by_system(tls, error);
}

/* Seals one piece, and writes it as far as the socket takes it. */
static bool seal(struct tls *tls, const char *data, size_t size)
{
    size_t sealed;

    assert(tls->wire->out_length == 0);
    if (SSL_write_ex(tls->ssl, data, size, &sealed) != 1 || sealed != size) {
        fail_by_openssl(tls);
        (void)tls_flush(tls);
        return false;
    }
    if (!tls_flush(tls)) {
        fail_by_write(tls, errno);
        return false;
    }
    return true;
}

ssize_t tls_write(struct tls *tls, const char *data, size_t size)
{
    if (tls->state != TLS_OPEN) {
        return tls->state == TLS_FAILED ? TLS_BROKEN : TLS_AGAIN;
    }
    if (tls_wants_write(tls) && !tls_flush(tls)) {
        fail_by_system(tls, errno);
        return TLS_BROKEN;
    }
    if (tls_wants_write(tls)) {
        return TLS_AGAIN;
    }
    size_t done = tls->owes ? 1 : 0;
    tls->owes = false;
    while (done < size && !tls_wants_write(tls)) {
        size_t piece = size - done < TLS_WRITE_MAX ? size - done : TLS_WRITE_MAX;
        if (!seal(tls, data + done, piece)) {
            /* What the kernel has may arrive, and must not be sent anew: the next call says that it is broken. */
            return done > 0 ? (ssize_t)done : TLS_BROKEN;
        }
        done += piece;
    }
    if (tls_wants_write(tls)) {
        tls->owes = true;
        done--;
    }
    return done > 0 ? (ssize_t)done : TLS_AGAIN;
}

void tls_end_output(struct tls *tls)
{
    say_end(tls);
    tls->ends = true;
    end_if_written(tls);
}
