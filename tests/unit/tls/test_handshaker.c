#include "event/handshaker.h"

#include "tls_files.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* The owner of a handshaker, and both contexts. */
struct world {
    struct tls_files files;
    struct tls_context *server;
    struct tls_context *client;
    struct stats stats;
    struct reactor reactor;
    struct handshaker *handshaker;
};

/* One end of a connection. */
struct side {
    int fd;
    struct tls *tls;
    struct handshake *handshake;
    unsigned ended;
};

static void prepare(struct world *world)
{
    memset(world, 0, sizeof *world);
    tls_files_open(&world->files);
    const struct tls_identity identity = tls_files_server(&world->files);
    struct tls_settings server = tls_files_settings(true), client = tls_files_settings(false);
    server.certificate = identity.path;
    client.ca = world->files.ca;
    world->server = tls_files_context(&server);
    world->client = tls_files_context(&client);
    cr_assert(reactor_init(&world->reactor, &world->stats));
    world->reactor.wire = tls_wire_new(&world->reactor.buffers);
    world->handshaker = handshaker_new(&world->reactor, true);
    cr_assert(world->reactor.wire != NULL && world->handshaker != NULL);
}

static void drop(struct world *world)
{
    handshaker_free(world->handshaker);
    reactor_free(&world->reactor);
    tls_context_release(world->server);
    tls_context_release(world->client);
    tls_files_close(&world->files);
}

static void on_ended(void *context)
{
    struct side *side = context;

    side->ended++;
    side->handshake = NULL;
}

static void begin(struct world *world, struct side *side, int fd, bool is_server, struct handshake_order order)
{
    *side = (struct side){.fd = fd};
    side->tls =
        tls_new(is_server ? world->server : world->client, world->reactor.wire, fd, is_server ? NULL : "localhost");
    cr_assert_not_null(side->tls);
    order.tls = side->tls;
    order.fd = fd;
    order.begins = !is_server;
    order.ended = on_ended;
    order.context = side;
    side->handshake = handshaker_begin(world->handshaker, &order);
    cr_assert_not_null(side->handshake);
}

static void begin_both(struct world *world, struct side sides[2], struct handshake_order order)
{
    int fds[2];

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    begin(world, &sides[0], fds[0], true, order);
    begin(world, &sides[1], fds[1], false, order);
}

static void bring(int from, int to)
{
    struct pollfd waits = {.fd = from, .events = POLLIN};
    char bytes[65536];

    cr_assert_eq(poll(&waits, 1, 60000), 1);
    ssize_t length = recv(from, bytes, sizeof bytes, 0);
    cr_assert_gt(length, 0);
    cr_assert_eq(send(to, bytes, (size_t)length, 0), length);
}

static size_t count_descriptors(void)
{
    size_t count = 0;

    for (int fd = 0; fd < 4096; fd++) {
        count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    }
    return count;
}

/* At each moment: before the thread has heard of it, within it, and when its result is on its way. */
Test(handshaker, what_is_dropped_is_closed_and_not_told_of, .timeout = 300)
{
    enum { ROUNDS = 150 };
    struct world world;
    struct side sides[ROUNDS][2];

    prepare(&world);
    handshaker_free(world.handshaker);
    size_t before = count_descriptors();
    world.handshaker = handshaker_new(&world.reactor, true);
    cr_assert_not_null(world.handshaker);
    for (unsigned i = 0; i < ROUNDS; i++) {
        begin_both(&world, sides[i], (struct handshake_order){.timeout_ms = i % 5 == 0 ? 1 : 60000});
        usleep(i * 37);
        (void)event_base_loop(world.reactor.base, EVLOOP_NONBLOCK);
        for (size_t side = 0; side < 2; side++) {
            if (sides[i][side].handshake != NULL) {
                handshaker_drop(sides[i][side].handshake);
            }
        }
    }
    handshaker_free(world.handshaker);
    world.handshaker = NULL;
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (size_t side = 0; side < 2; side++) {
            bool is_ended = sides[i][side].handshake == NULL;
            cr_expect_eq(sides[i][side].ended, is_ended ? 1 : 0);
            if (is_ended) {
                tls_free(sides[i][side].tls);
                close(sides[i][side].fd);
            }
        }
    }
    cr_expect_eq(count_descriptors(), before);
    drop(&world);
}

/* Its flight does not fit into the socket, as nobody reads there. */
Test(handshaker, what_is_dropped_while_it_waits_for_the_socket)
{
    struct world world;
    struct side server;
    int far[2], near[2], left = 1;
    char bytes[4096] = {0};

    prepare(&world);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, far), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, near), 0);
    while (send(far[0], bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {
    }
    struct tls *client = tls_new(world.client, world.reactor.wire, near[0], "localhost");
    begin(&world, &server, far[0], true, (struct handshake_order){.timeout_ms = 60000});
    cr_assert_eq(tls_handshake(client), TLS_HANDSHAKE);
    bring(near[1], far[1]);
    while (left > 0) {
        /* Until the thread has taken what the client says. */
        cr_assert_eq(ioctl(far[0], FIONREAD, &left), 0);
        usleep(1000);
    }
    handshaker_drop(server.handshake);
    handshaker_free(world.handshaker);
    world.handshaker = NULL;
    cr_expect_eq(server.ended, 0);
    cr_expect_eq(fcntl(far[0], F_GETFD), -1, "it is closed");
    tls_free(client);
    close(near[0]);
    close(near[1]);
    close(far[1]);
    drop(&world);
}
