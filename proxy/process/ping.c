/* The question whether a Headgate serves. */
#include "process/ping.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* For each step: connecting, asking, the answer. */
#define PATIENCE_SECONDS 3
#define ANSWER_BYTES 256

/* NULL: none. */
static const struct conf_address *find_plain(const struct conf_address_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        if (!list->items[i].tls) {
            return &list->items[i];
        }
    }
    return NULL;
}

/* The first of a server; NULL: none of it can be asked. */
static const struct conf_address *choose_of(const struct conf *server)
{
    const struct conf_address *address = NULL;

    for (size_t i = 0; address == NULL && i < conf_listener_count(server); i++) {
        struct conf_listener listener = conf_listener_at(server, i);
        bool is_proxied = listener.terms->proxy_protocol == CONF_PROXY_PROTOCOL_REQUIRED;
        address = is_proxied ? NULL : find_plain(listener.listen);
    }
    return address;
}

static const struct conf_address *choose(const struct conf *conf, bool asks_admin)
{
    const struct conf_address *address = NULL;

    for (size_t i = 0; !asks_admin && address == NULL && i < conf_server_count(conf); i++) {
        address = choose_of(conf_server_at(conf, i));
    }
    return address != NULL ? address : find_plain(&conf->admin);
}

static int open_socket(int family)
{
    const struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    }
    return fd;
}

/* Takes fd. */
static int connected(int fd, const struct sockaddr *address, socklen_t length)
{
    if (fd >= 0 && connect(fd, address, length) != 0) {
        int error = errno == EINPROGRESS ? ETIMEDOUT : errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static int connect_path(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return connected(open_socket(AF_UNIX), (const struct sockaddr *)&address, sizeof address);
}

static int connect_host(const struct conf_address *address)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    char port[8];
    int fd = -1;

    snprintf(port, sizeof port, "%u", (unsigned)address->port);
    errno = EADDRNOTAVAIL;
    if (getaddrinfo(address->host, port, &wanted, &found) != 0) {
        return -1;
    }
    for (const struct addrinfo *one = found; one != NULL && fd < 0; one = one->ai_next) {
        fd = connected(open_socket(one->ai_family), one->ai_addr, one->ai_addrlen);
    }
    int error = errno;
    freeaddrinfo(found);
    errno = error;
    return fd;
}

/* Up to the end of its first line; false with errno set. */
static bool read_answer(int fd, char answer[ANSWER_BYTES])
{
    size_t length = 0;

    while (length < ANSWER_BYTES - 1 && memchr(answer, '\n', length) == NULL) {
        ssize_t got = recv(fd, answer + length, ANSWER_BYTES - 1 - length, 0);
        if (got <= 0) {
            errno = got == 0 ? ECONNRESET : errno == EAGAIN ? ETIMEDOUT : errno;
            return false;
        }
        length += (size_t)got;
    }
    answer[length] = '\0';
    answer[strcspn(answer, "\r\n")] = '\0';
    return true;
}

static bool ask(int fd, char answer[ANSWER_BYTES])
{
    static const char question[] = "*1\r\n$4\r\nPING\r\n";

    return send(fd, question, sizeof question - 1, MSG_NOSIGNAL) == (ssize_t)(sizeof question - 1) &&
           read_answer(fd, answer);
}

/* Others than Redis may be there, and what they say goes to a terminal. */
static void print_plain(const char *text)
{
    for (; *text != '\0'; text++) {
        putchar(*text >= ' ' && *text < 0x7f ? *text : '?');
    }
    putchar('\n');
}

int ping_run(const struct conf *conf, bool asks_admin)
{
    const struct conf_address *address = choose(conf, asks_admin);
    char answer[ANSWER_BYTES];

    if (address == NULL) {
        fputs("headgate: there is no address without TLS and the PROXY protocol: none can be asked by --ping\n",
              stderr);
        return 1;
    }
    int fd = address->path != NULL ? connect_path(address->path) : connect_host(address);
    if (fd < 0 || !ask(fd, answer)) {
        fprintf(stderr, "headgate: %s: %s\n", address->text, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return 1;
    }
    close(fd);
    print_plain(answer);
    return strcmp(answer, "+PONG") == 0 || strncmp(answer, "-NOAUTH ", 8) == 0 ? 0 : 1;
}
