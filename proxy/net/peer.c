/*
 * Sources: Linux, include/uapi/linux/sock_diag.h and inet_diag.h; sock_diag(7), netlink(7); Documentation/networking/
 * proc_net_tcp.rst.
 */
#include "net/peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* One end of a connection: IPv4 addresses in the form that they have among those of IPv6. */
struct end {
    uint32_t address[4]; /* in network order, as is the port */
    uint16_t port;
};

/* A connection as the other end sees it. */
struct flow {
    sa_family_t family;
    struct end from; /* the other end */
    struct end to;   /* ours */
};

static const char gone[] = "the process at the other end has closed its socket";
static const char elsewhere[] = "no process of this machine has the other end";
static const char untold[] = "the kernel does not tell whose the other end is";

/* ---- addresses ---- */

static bool is_mapped(const uint32_t address[4])
{
    return address[0] == 0 && address[1] == 0 && address[2] == htonl(0xffff);
}

static struct end end_of_ipv4(uint32_t address, uint16_t port)
{
    return (struct end){{0, 0, htonl(0xffff), address}, port};
}

static bool end_of(const struct sockaddr_storage *address, struct end *end)
{
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        *end = end_of_ipv4(in->sin_addr.s_addr, in->sin_port);
        return true;
    }
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        memcpy(end->address, &in6->sin6_addr, sizeof end->address);
        end->port = in6->sin6_port;
        return true;
    }
    return false;
}

static bool same_end(const struct end *left, const struct end *right)
{
    return left->port == right->port && memcmp(left->address, right->address, sizeof left->address) == 0;
}

static bool flow_of(int fd, struct flow *flow)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t own_length = sizeof own, other_length = sizeof other;

    if (getsockname(fd, (struct sockaddr *)&own, &own_length) != 0 ||
        getpeername(fd, (struct sockaddr *)&other, &other_length) != 0 || !end_of(&own, &flow->to) ||
        !end_of(&other, &flow->from)) {
        return false;
    }
    flow->family = is_mapped(flow->from.address) ? AF_INET : AF_INET6;
    return true;
}

/* ---- what is known of a socket ---- */

/* Of a socket that its process has left, and of what is left of a closed connection, the kernel says that it is root's:
 * these have no inode. */
static bool is_held(uint64_t inode, const char **why)
{
    *why = inode == 0 ? gone : NULL;
    return inode != 0;
}

/* ---- one question ---- */

struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

/* IPv4 addresses stand in the first word. */
static void put_end(const struct flow *flow, const struct end *end, __be32 address[4], __be16 *port)
{
    if (flow->family == AF_INET) {
        address[0] = end->address[3];
    } else {
        memcpy(address, end->address, sizeof end->address);
    }
    *port = end->port;
}

static struct question question_for(const struct flow *flow)
{
    struct question question = {
        .head = {.nlmsg_len = sizeof question, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = (__u8)flow->family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = UINT32_MAX,
                 .id = {.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
    };

    put_end(flow, &flow->from, question.body.id.idiag_src, &question.body.id.idiag_sport);
    put_end(flow, &flow->to, question.body.id.idiag_dst, &question.body.id.idiag_dport);
    return question;
}

static struct end end_in_answer(const struct inet_diag_msg *answer, const __be32 address[4], __be16 port)
{
    struct end end = {.port = port};

    if (answer->idiag_family == AF_INET) {
        return end_of_ipv4(address[0], port);
    }
    memcpy(end.address, address, sizeof end.address);
    return end;
}

/* The kernel falls back on a socket that listens where no connection fits. */
static bool is_about(const struct inet_diag_msg *answer, const struct flow *flow)
{
    struct end from = end_in_answer(answer, answer->id.idiag_src, answer->id.idiag_sport);
    struct end to = end_in_answer(answer, answer->id.idiag_dst, answer->id.idiag_dport);

    return same_end(&from, &flow->from) && same_end(&to, &flow->to);
}

static bool read_answer(const void *data, size_t length, const struct flow *flow, struct peer *peer, const char **why)
{
    const struct nlmsghdr *head = data;
    const struct inet_diag_msg *answer = NLMSG_DATA(head);

    *why = untold;
    if (length < sizeof *head || length < head->nlmsg_len) {
        return false;
    }
    if (head->nlmsg_type == NLMSG_ERROR && head->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr))) {
        const struct nlmsgerr *error = NLMSG_DATA(head);
        *why = error->error == -ENOENT ? elsewhere : untold;
        return false;
    }
    if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY || head->nlmsg_len < NLMSG_LENGTH(sizeof *answer)) {
        return false;
    }
    if (!is_about(answer, flow)) {
        *why = elsewhere;
        return false;
    }
    *peer = (struct peer){.uid = answer->idiag_uid, .inode = answer->idiag_inode};
    return is_held(peer->inode, why);
}

static bool ask(const struct flow *flow, struct peer *peer, const char **why)
{
    const struct question question = question_for(flow);
    const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    _Alignas(struct nlmsghdr) char answer[4096];
    bool found = false;
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

    *why = untold;
    if (fd < 0) {
        return false;
    }
    /* The answer is there when the question was sent. */
    if (sendto(fd, &question, sizeof question, 0, (const struct sockaddr *)&kernel, sizeof kernel) ==
        (ssize_t)sizeof question) {
        ssize_t length = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
        found = length > 0 && read_answer(answer, (size_t)length, flow, peer, why);
    }
    close(fd);
    return found;
}

/* ---- the table ---- */

/* The table has the words of an address as numbers of this machine. */
static bool parse_end(const char *text, struct end *end)
{
    unsigned words[4], port;

    if (sscanf(text, "%8x%8x%8x%8x:%4x", &words[0], &words[1], &words[2], &words[3], &port) == 5) {
        memcpy(end->address, words, sizeof end->address);
    } else if (sscanf(text, "%8x:%4x", &words[0], &port) == 2) {
        *end = end_of_ipv4(words[0], 0);
    } else {
        return false;
    }
    end->port = htons((uint16_t)port);
    return true;
}

static bool parse_line(const char *line, const struct flow *flow, struct peer *peer)
{
    char from_text[64], to_text[64];
    unsigned long long inode;
    unsigned uid;
    struct end from, to;

    if (sscanf(line, " %*[^:]: %63s %63s %*x %*[^ ] %*[^ ] %*x %u %*d %llu", from_text, to_text, &uid, &inode) != 4 ||
        !parse_end(from_text, &from) || !parse_end(to_text, &to) || !same_end(&from, &flow->from) ||
        !same_end(&to, &flow->to)) {
        return false;
    }
    *peer = (struct peer){.uid = uid, .inode = inode};
    return true;
}

/* False: it is not in that table, or *why says that there is none. */
static bool look_up(const char *path, const struct flow *flow, struct peer *peer, const char **why)
{
    FILE *table = fopen(path, "re");
    char line[512];
    bool found = false;

    if (table == NULL) {
        *why = untold;
        return false;
    }
    while (!found && fgets(line, sizeof line, table) != NULL) {
        found = parse_line(line, flow, peer);
    }
    fclose(table);
    return found;
}

/* A socket of IPv6 may be connected by addresses of IPv4. */
static bool read_table(const struct flow *flow, struct peer *peer, const char **why)
{
    *why = elsewhere;
    bool found = (flow->family == AF_INET && look_up("/proc/self/net/tcp", flow, peer, why)) ||
                 look_up("/proc/self/net/tcp6", flow, peer, why);

    return found && is_held(peer->inode, why);
}

/* ---- either ---- */

bool peer_find_tcp(int fd, enum peer_source source, struct peer *peer, const char **why)
{
    struct flow flow = {0};

    if (!flow_of(fd, &flow)) {
        *why = gone;
        return false;
    }
    return (source == PEER_BY_QUESTION ? ask : read_table)(&flow, peer, why);
}

static bool find_unix(int fd, struct peer *peer, const char **why)
{
    struct ucred credentials;
    socklen_t length = sizeof credentials;

    *why = untold;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
        return false;
    }
    *peer = (struct peer){.uid = credentials.uid, .pid = credentials.pid};
    return true;
}

bool peer_find(int fd, struct peer *peer, const char **why)
{
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;

    if (getsockname(fd, (struct sockaddr *)&own, &length) == 0 && own.ss_family == AF_UNIX) {
        return find_unix(fd, peer, why);
    }
    return peer_find_tcp(fd, PEER_BY_QUESTION, peer, why) ||
           (*why == untold && peer_find_tcp(fd, PEER_BY_TABLE, peer, why));
}
