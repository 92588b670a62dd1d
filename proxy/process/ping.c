/* The question whether a Headgate serves. */
#include "process/ping.h"

#include "process/ask.h"
#include "tls/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* For each step: connecting, asking, the answer. */
#define PATIENCE_SECONDS 3

/* Of a server, at which TLS is not spoken, or is; NULL: none of it can be asked. */
static const struct conf_address *choose_of(const struct conf *server, bool speaks_tls)
{
    const struct conf_address *address = NULL;

    for (size_t i = 0; address == NULL && i < conf_listener_count(server); i++) {
        struct conf_listener listener = conf_listener_at(server, i);
        bool is_proxied = listener.terms->proxy_protocol == CONF_PROXY_PROTOCOL_REQUIRED;
        address = is_proxied ? NULL : ask_find(listener.listen, speaks_tls);
    }
    return address;
}

static bool wants_certificate(const struct conf *server)
{
    return server->client_certificates == TLS_CLIENT_CERTIFICATES_REQUIRED;
}

/* Clients' before operators', and those without TLS before those with it. */
static const struct conf_address *choose(const struct conf *conf, bool asks_admin)
{
    const struct conf_address *address = NULL;

    for (int tls = 0; !asks_admin && tls < 2; tls++) {
        for (size_t i = 0; address == NULL && i < conf_server_count(conf); i++) {
            const struct conf *server = conf_server_at(conf, i);
            address = tls && wants_certificate(server) ? NULL : choose_of(server, tls);
        }
    }
    address = address != NULL ? address : ask_find(&conf->admin, false);
    return address != NULL || wants_certificate(conf) ? address : ask_find(&conf->admin, true);
}

/* ---- by TLS ---- */

/* False with errno set: nothing has come in time. */
static bool await(int fd)
{
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    int found = (int)TEMP_FAILURE_RETRY(poll(&wanted, 1, PATIENCE_SECONDS * 1000));

    errno = found == 0 ? ETIMEDOUT : errno;
    return found > 0;
}

static bool shake_hands(struct tls *tls, int fd)
{
    enum tls_state state = tls_handshake(tls);

    while (state == TLS_HANDSHAKE && await(fd)) {
        state = tls_handshake(tls);
    }
    return state == TLS_OPEN;
}

/* Up to the end of its first line. */
static bool read_line(struct tls *tls, int fd, char answer[ASK_ANSWER_BYTES])
{
    size_t length = 0;

    while (length < ASK_ANSWER_BYTES - 1 && memchr(answer, '\n', length) == NULL) {
        ssize_t got = tls_read(tls, answer + length, ASK_ANSWER_BYTES - 1 - length);
        errno = ECONNRESET;
        if (got == 0 || got == TLS_BROKEN || (got == TLS_AGAIN && !await(fd))) {
            return false;
        }
        length += got > 0 ? (size_t)got : 0;
    }
    answer[length] = '\0';
    answer[strcspn(answer, "\r\n")] = '\0';
    return true;
}

/* As ask(). Nobody looks whose certificate it is: nothing is told that others must not know, nor done by what comes. */
static bool ask_secure(int fd, const char *request, size_t length, char answer[ASK_ANSWER_BYTES])
{
    const struct tls_settings settings = {
        .certificate = "",
        .key = "",
        .ca = "",
        .crl = "",
        .server_name = "",
        .protocols = "TLSv1.2 TLSv1.3",
        .ciphers = "",
        .ciphersuites = "",
    };
    struct tls_fault fault;
    struct buffer_pool pool = {0};
    struct tls_context *context = tls_context_new(&settings, &fault);
    struct tls_wire *wire = tls_wire_new(&pool);
    struct tls *tls = context != NULL && wire != NULL ? tls_new(context, wire, fd, NULL) : NULL;
    bool answered = false;

    errno = ENOMEM;
    if (tls != NULL && fcntl(fd, F_SETFL, O_NONBLOCK) == 0) {
        answered =
            shake_hands(tls, fd) && tls_write(tls, request, length) == (ssize_t)length && read_line(tls, fd, answer);
        if (tls_state(tls) == TLS_FAILED) {
            fprintf(stderr, "headgate: no TLS: %s\n", tls_why(tls));
            errno = EPROTO;
        }
    }
    int error = errno;
    tls_free(tls);
    tls_wire_free(wire);
    tls_context_release(context);
    buffer_pool_free(&pool);
    errno = error;
    return answered;
}

/* ---- the answer ---- */

/* Whether who says so serves: Redis has answered, if only that a password is wanted or that PING is for others; or a
 * rule of Headgate's has refused to ask it, which is no reason to take it out of service. */
static bool is_healthy(const char *answer)
{
    static const char *const begins[] = {"-NOAUTH ", "-NOPERM ", "-ERR unknown command", "-RATELIMITED ", "-DENIED "};
    bool is = strcmp(answer, "+PONG") == 0;

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        is = is || strncmp(answer, begins[i], strlen(begins[i])) == 0;
    }
    return is;
}

int ping_run(const struct conf *conf, bool asks_admin)
{
    const struct conf_address *address = choose(conf, asks_admin);
    static const char question[] = "*1\r\n$4\r\nPING\r\n";
    char answer[ASK_ANSWER_BYTES];

    if (address == NULL) {
        fputs("headgate: each address wants a PROXY header or a certificate: none can be asked by --ping\n", stderr);
        return 1;
    }
    int fd = ask_connect(address, PATIENCE_SECONDS);
    bool answered = fd >= 0 && (address->tls ? ask_secure(fd, question, sizeof question - 1, answer)
                                             : ask(fd, question, sizeof question - 1, answer));
    if (!answered) {
        fprintf(stderr, "headgate: %s: %s\n", address->text, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return 1;
    }
    close(fd);
    ask_print(stdout, answer);
    return is_healthy(answer) ? 0 : 1;
}
