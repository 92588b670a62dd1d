#include "process/ask.h"

#include "net/connection.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

const struct conf_address *ask_find(const struct conf_address_list *list, bool speaks_tls)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].tls == speaks_tls) {
            return &list->items[i];
        }
    }
    return NULL;
}

static int open_socket(int family, int patience_s)
{
    const struct timeval patience = {.tv_sec = patience_s};
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

int ask_connect(const struct conf_address *address, int patience_s)
{
    struct connection_targets targets;
    int fd = -1;

    (void)connection_resolve(address, &targets);
    errno = EADDRNOTAVAIL;
    for (size_t i = 0; i < targets.count && fd < 0; i++) {
        const struct sockaddr *one = (const struct sockaddr *)&targets.items[i].address;
        fd = connected(open_socket(one->sa_family, patience_s), one, targets.items[i].length);
    }
    return fd;
}

/* Up to the end of its first line, also when the process is stopped for a while; false with errno set. */
static bool read_answer(int fd, char answer[ASK_ANSWER_BYTES])
{
    size_t length = 0;

    while (length < ASK_ANSWER_BYTES - 1 && memchr(answer, '\n', length) == NULL) {
        ssize_t got = TEMP_FAILURE_RETRY(recv(fd, answer + length, ASK_ANSWER_BYTES - 1 - length, 0));
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

bool ask(int fd, const char *request, size_t length, char answer[ASK_ANSWER_BYTES])
{
    return send(fd, request, length, MSG_NOSIGNAL) == (ssize_t)length && read_answer(fd, answer);
}

void ask_print(FILE *out, const char *answer)
{
    for (; *answer != '\0'; answer++) {
        fputc(*answer >= ' ' && *answer < 0x7f ? *answer : '?', out);
    }
    fputc('\n', out);
}
