/*
 * Whether another process listens where this one does. The kernel tells of all sockets that listen in our network
 * namespace, with the number by which ours is known; if that cannot be read, nobody is known to.
 */
#include "net/port.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* TCP_LISTEN, as the kernel numbers it there. */
#define STATE_LISTENS 10
/* An address of IPv6 as the kernel writes it, and its end. */
#define ADDRESS_TEXT 33
#define LINE_MAX_BYTES 512

/* Writes the address as the kernel does, word by word, each as the machine reads it. */
static unsigned write_address(const struct sockaddr_storage *own, char text[ADDRESS_TEXT])
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)own;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)own;
    uint32_t words[4];

    if (own->ss_family == AF_INET) {
        snprintf(text, ADDRESS_TEXT, "%08X", in->sin_addr.s_addr);
        return ntohs(in->sin_port);
    }
    memcpy(words, &in6->sin6_addr, sizeof words);
    snprintf(text, ADDRESS_TEXT, "%08X%08X%08X%08X", words[0], words[1], words[2], words[3]);
    return ntohs(in6->sin6_port);
}

/* Whether the table has a socket that listens there, and is another one. Those that listen are its first; how many
   connections there are behind them, and how many that were closed of late, is not ours to say. */
static bool has_other(FILE *table, const char *address, unsigned port, ino_t own)
{
    char line[LINE_MAX_BYTES], there[ADDRESS_TEXT];
    unsigned its_port, state = STATE_LISTENS;
    unsigned long inode;
    bool found = false;

    if (fgets(line, sizeof line, table) == NULL) { /* the head */
        return false;
    }
    while (!found && state == STATE_LISTENS && fgets(line, sizeof line, table) != NULL) {
        found = sscanf(line, " %*u: %32[0-9A-F]:%X %*[0-9A-F]:%*X %X %*s %*s %*s %*s %*s %lu", there, &its_port, &state,
                       &inode) == 4 &&
                state == STATE_LISTENS && its_port == port && strcmp(there, address) == 0 && inode != own;
    }
    return found;
}

static bool is_shared(int fd)
{
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;
    char address[ADDRESS_TEXT];
    struct stat status;

    if (getsockname(fd, (struct sockaddr *)&own, &length) != 0 || fstat(fd, &status) != 0 ||
        (own.ss_family != AF_INET && own.ss_family != AF_INET6)) {
        return false;
    }
    FILE *table = fopen(own.ss_family == AF_INET ? "/proc/self/net/tcp" : "/proc/self/net/tcp6", "re");
    if (table == NULL) {
        return false;
    }
    unsigned port = write_address(&own, address);
    bool found = has_other(table, address, port, status.st_ino);
    (void)fclose(table);
    return found;
}

bool port_has_successor(const struct port *port)
{
    struct stat status;

    if (*port->file.path != '\0') {
        return stat(port->file.path, &status) == 0 &&
               (status.st_ino != port->file.inode || status.st_dev != port->file.device);
    }
    return port->fd >= 0 && is_shared(port->fd);
}
