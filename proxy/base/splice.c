#include "base/splice.h"

#include <fcntl.h>
#include <unistd.h>

/* What an unprivileged process may ask for. */
#define PIPE_CAPACITY (1024 * 1024)

bool splice_open(struct splice *splice)
{
    int ends[2];

    splice->read_fd = -1;
    splice->write_fd = -1;
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) {
        return false;
    }
    splice->read_fd = ends[0];
    splice->write_fd = ends[1];
    /* A smaller one does, too. */
    (void)fcntl(splice->write_fd, F_SETPIPE_SZ, PIPE_CAPACITY);
    return true;
}

void splice_close(struct splice *splice)
{
    if (splice->read_fd >= 0) {
        close(splice->read_fd);
        close(splice->write_fd);
        splice->read_fd = -1;
        splice->write_fd = -1;
    }
}

ssize_t splice_move(struct splice *scratch, int from, int to, size_t most, size_t *left)
{
    const unsigned flags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;

    *left = 0;
    if (scratch->write_fd < 0) {
        return 0;
    }
    ssize_t taken = splice(from, NULL, scratch->write_fd, NULL, most, flags);
    if (taken <= 0) {
        return taken;
    }
    *left = (size_t)taken;
    while (*left > 0) {
        ssize_t given = splice(scratch->read_fd, NULL, to, NULL, *left, flags);
        if (given <= 0) {
            /* It is full, or broken: the next ordinary write will tell which. */
            break;
        }
        *left -= (size_t)given;
    }
    return taken;
}

bool splice_fetch(struct splice *splice, struct buffer_pool *pool, struct buffer *buffer, size_t length)
{
    char *room = buffer_reserve(pool, buffer, length);

    while (room != NULL && length > 0) {
        ssize_t got = read(splice->read_fd, room, length);
        if (got <= 0) {
            break;
        }
        buffer_commit(buffer, (size_t)got);
        room += got;
        length -= (size_t)got;
    }
    if (length > 0) {
        /* Nobody must find these bytes in it. */
        splice_close(splice);
        (void)splice_open(splice);
    }
    return length == 0;
}
