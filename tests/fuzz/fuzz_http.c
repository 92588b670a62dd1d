/*
 * Fuzzes requests of HTTP, as they come from a connection: libevent takes them apart, and the guard says whether they
 * are answered. What must hold for all bytes:
 * - who is admitted has asked for a host of ours, comes from no other site, and has the password, as is read here by
 *   other means from the same headers;
 * - whatever comes, the connection comes to its end, and nothing is left of it.
 * The first byte says how the rest is cut in two.
 */
#include "http/http_private.h"

#include "fuzz_cut.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PASSWORD "secret"
#define READ_PASSWORD "looker"
#define MACHINE "box"
#define NAMED "headgate.example"
/* Rounds of the event loop without an end of the connection: it is given up then. */
#define ROUNDS 200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fixture {
    struct event_base *base;
    struct evhttp *server;
    struct sockaddr_un address;
    socklen_t length;
    struct conf conf;
    struct http http;
};

/* ---- reading the same by other means ---- */

static bool is_number(char *host)
{
    struct in6_addr number;
    size_t length = strlen(host);

    if (length > 1 && host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        host++;
    }
    return inet_pton(AF_INET, host, &number) == 1 || inet_pton(AF_INET6, host, &number) == 1;
}

static bool is_ours(const char *value)
{
    static const char *const names[] = {"localhost", MACHINE, NAMED};
    char host[1024];
    bool is = false;

    if (strlen(value) >= sizeof host) {
        return false;
    }
    strcpy(host, value);
    char *end = host[0] == '[' && strchr(host, ']') != NULL ? strchr(host, ']') + 1 : strchr(host, ':');
    if (end != NULL) {
        *end = '\0';
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        is = is || strcasecmp(host, names[i]) == 0;
    }
    return is || is_number(host);
}

static int digit_of(char letter)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = letter != '\0' ? strchr(digits, letter) : NULL;

    return found != NULL ? (int)(found - digits) : -1;
}

/* Whether the first word is, in base64, something that ends with ":" and one of the passwords, which are equally long.
 */
static bool has_password(const char *text)
{
    char plain[4096];
    size_t length = 0;
    uint32_t bits = 0, held = 0;

    text += strspn(text, " ");
    for (; *text != '\0' && *text != ' ' && *text != '\t' && length < sizeof plain; text++) {
        int digit = digit_of(*text);
        if (digit < 0) {
            continue;
        }
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            plain[length++] = (char)(bits >> held & 0xff);
        }
    }
    size_t wanted = strlen(":" PASSWORD);
    const char *colon = memchr(plain, ':', length);
    return colon != NULL && length - (size_t)(colon - plain) == wanted &&
           (memcmp(colon, ":" PASSWORD, wanted) == 0 || memcmp(colon, ":" READ_PASSWORD, wanted) == 0);
}

static const char *value_of(struct evhttp_request *request, const char *name, size_t *count)
{
    const struct evkeyval *header;
    const char *value = NULL;

    *count = 0;
    for (header = evhttp_request_get_input_headers(request)->tqh_first; header != NULL;
         header = header->next.tqe_next) {
        if (strcasecmp(header->key, name) == 0) {
            value = (*count)++ == 0 ? header->value : value;
        }
    }
    return value;
}

static void check_admitted(struct evhttp_request *request, bool is_probe, bool is_page)
{
    size_t hosts, sites, origins, passwords, count;
    const char *host = value_of(request, "Host", &hosts);
    const char *site = value_of(request, "Sec-Fetch-Site", &sites);
    const char *origin = value_of(request, "Origin", &origins);
    const char *password = value_of(request, "Authorization", &passwords);
    const char *mode = value_of(request, "Sec-Fetch-Mode", &count);
    const char *in_uri = evhttp_uri_get_host(evhttp_request_get_evhttp_uri(request));

    require(hosts <= 1 && (hosts == 0 || is_ours(host)));
    require(in_uri == NULL || is_ours(in_uri));
    require(sites <= 1 && origins <= 1);
    require(sites == 0 || strcasecmp(site, "same-origin") == 0 || strcasecmp(site, "none") == 0 ||
            (is_page && mode != NULL && strcasecmp(mode, "navigate") == 0));
    require(origins == 0 || (hosts == 1 && strlen(origin) > strlen(host) &&
                             strcasecmp(origin + strlen(origin) - strlen(host), host) == 0));
    require(is_probe || (passwords == 1 && strncasecmp(password, "Basic ", 6) == 0 && has_password(password + 6)));
}

static void on_request(struct evhttp_request *request, void *context)
{
    struct http *http = context;
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *path = uri != NULL ? evhttp_uri_get_path(uri) : NULL;
    bool is_probe = path != NULL && strcmp(path, "/live") == 0;
    bool is_page = path != NULL && strcmp(path, "/") == 0;

    if (http_guard_admits(http, request, is_probe, is_page)) {
        check_admitted(request, is_probe, is_page);
        http_reply_line(http, request, 200, "admitted");
    }
}

/* ---- the connection ---- */

static const struct conf *current_conf(void *context)
{
    return context;
}

static struct fixture *fixture(void)
{
    static struct fixture only;
    static char password[] = PASSWORD, read_password[] = READ_PASSWORD, names[] = "other, " NAMED;
    struct fixture *made = &only;

    if (made->base != NULL) {
        return made;
    }
    (void)log_open("/dev/null", LOG_LEVEL_ERROR);
    made->conf.admin_password = password;
    made->conf.admin_read_password = read_password;
    made->conf.http_names = names;
    made->http.host = (struct http_host){.conf = current_conf, .context = &made->conf};
    strcpy(made->http.machine, MACHINE);
    made->base = event_base_new();
    made->server = evhttp_new(made->base);
    evhttp_set_max_headers_size(made->server, 16 * 1024);
    evhttp_set_max_body_size(made->server, 64 * 1024);
    evhttp_set_allowed_methods(made->server, UINT16_MAX);
    evhttp_set_gencb(made->server, on_request, &made->http);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    made->address.sun_family = AF_UNIX;
    made->length = sizeof made->address.sun_family;
    /* The kernel chooses a name. */
    require(bind(fd, (struct sockaddr *)&made->address, made->length) == 0 && listen(fd, 8) == 0);
    made->length = sizeof made->address;
    require(getsockname(fd, (struct sockaddr *)&made->address, &made->length) == 0);
    require(evhttp_accept_socket(made->server, fd) == 0);
    return made;
}

static void send_piece(struct fixture *made, int fd, const uint8_t *data, size_t size)
{
    ssize_t done = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);

    (void)done;
    for (int i = 0; i < 3; i++) {
        event_base_loop(made->base, EVLOOP_NONBLOCK);
    }
}

/* Whether the other side has ended it. What it says is thrown away. */
static bool has_ended(int fd)
{
    char bytes[4096];
    ssize_t got;

    while ((got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return got == 0 || (errno != EAGAIN && errno != EINTR);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fixture *made = fixture();

    if (size == 0 || size > 64 * 1024) {
        return 0;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(fd >= 0 && connect(fd, (struct sockaddr *)&made->address, made->length) == 0);
    size_t cut = 1 + (size - 1) * data[0] / 256;
    send_piece(made, fd, data + 1, cut - 1);
    send_piece(made, fd, data + cut, size - cut);
    (void)shutdown(fd, SHUT_WR);
    bool ended = false;
    for (int i = 0; i < ROUNDS && !ended; i++) {
        event_base_loop(made->base, EVLOOP_NONBLOCK);
        ended = has_ended(fd);
    }
    close(fd);
    event_base_loop(made->base, EVLOOP_NONBLOCK);
    require(ended);
    return 0;
}
