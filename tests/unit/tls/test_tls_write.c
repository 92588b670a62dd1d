/* Writing to a socket that breaks at a chosen moment: send() is this file's. */
#include "tls_files.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Pieces of what is written, as many as are sealed at once. */
#define PIECE ((size_t)128 * 1024)

static int sends_left = -1; /* -1: as many as there are */

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    if (sends_left == 0) {
        errno = EPIPE;
        return -1;
    }
    sends_left -= sends_left > 0;
    return sendto(fd, data, size, flags, NULL, 0);
}

Test(tls_write, what_the_kernel_has_taken_is_done_though_the_socket_breaks_behind_it)
{
    struct tls_files files;
    struct tls_pair pair;
    int size = 1024 * 1024;
    char *data = calloc(3, PIECE);

    tls_files_open(&files);
    struct tls_identity identity = tls_files_server(&files);
    struct tls_settings server_settings = tls_files_settings(true), client_settings = tls_files_settings(false);
    server_settings.certificate = identity.path;
    client_settings.ca = files.ca;
    struct tls_context *server = tls_files_context(&server_settings), *client = tls_files_context(&client_settings);
    tls_pair_open(&pair, server, client, "localhost");
    cr_assert(tls_pair_shake_hands(&pair));
    setsockopt(pair.fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    sends_left = 1;
    cr_expect_eq(tls_write(pair.client, data, 3 * PIECE), (ssize_t)PIECE);
    cr_expect_eq(tls_write(pair.client, data + PIECE, 2 * PIECE), TLS_BROKEN);
    sends_left = -1;
    tls_pair_close(&pair);
    tls_context_release(server);
    tls_context_release(client);
    tls_files_close(&files);
    free(data);
}
