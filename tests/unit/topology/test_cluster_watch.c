/* The watcher of a cluster beside nodes that say what the test wants: seeds, disagreement, strangers, silence. */
#include "topology/cluster_watch.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- nodes ---- */

#define NODES 4
#define TEXT_MAX 4096
/* Far longer than anything takes that is waited for. */
#define PATIENCE_US ((int64_t)20000000)

struct fake_node {
    struct evconnlistener *listener;
    uint16_t port;
    bool hangs;
    char slots[TEXT_MAX]; /* what it answers to CLUSTER SLOTS … */
    unsigned int epoch;   /* … and to CLUSTER INFO */
    unsigned int asked;
};

static struct {
    struct reactor reactor;
    struct stats stats;
    struct fake_node nodes[NODES];
    struct conf_address seeds[NODES];
    struct conf conf;
    struct cluster_watch *watch;
    size_t changes;
    size_t connections;      /* that nodes have accepted, and are open */
    struct cluster_map *map; /* handed out last */
} world;

static void on_request(struct bufferevent *connection, void *context)
{
    struct fake_node *node = context;
    struct evbuffer *input = bufferevent_get_input(connection);
    char request[TEXT_MAX], info[128], reply[2 * TEXT_MAX];
    size_t length = (size_t)evbuffer_copyout(input, request, sizeof(request) - 1);

    request[length] = '\0';
    if (strstr(request, "NODES") == NULL || node->hangs)
        return;
    evbuffer_drain(input, length);
    node->asked++;
    snprintf(info, sizeof(info), "cluster_state:ok\r\ncluster_current_epoch:%u\r\ncluster_my_epoch:1\r\n", node->epoch);
    snprintf(reply, sizeof(reply), "%s$%zu\r\n%s\r\n$0\r\n\r\n", node->slots, strlen(info), info);
    bufferevent_write(connection, reply, strlen(reply));
}

static void on_end(struct bufferevent *connection, short what, void *context)
{
    (void)what;
    (void)context;
    bufferevent_free(connection);
    world.connections--;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer, int length,
                      void *context)
{
    struct fake_node *node = context;

    (void)listener;
    (void)peer;
    (void)length;
    struct bufferevent *connection = bufferevent_socket_new(world.reactor.base, fd, BEV_OPT_CLOSE_ON_FREE);
    world.connections++;
    bufferevent_setcb(connection, on_request, NULL, on_end, node);
    bufferevent_enable(connection, EV_READ | EV_WRITE);
}

static void node_start(struct fake_node *node)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);

    address.sin_port = htons(node->port);
    node->listener =
        evconnlistener_new_bind(world.reactor.base, on_accept, node, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, 16,
                                (struct sockaddr *)&address, sizeof(address));
    cr_assert_not_null(node->listener);
    getsockname(evconnlistener_get_fd(node->listener), (struct sockaddr *)&address, &length);
    node->port = ntohs(address.sin_port);
}

static void node_stop(struct fake_node *node)
{
    evconnlistener_free(node->listener);
    node->listener = NULL;
}

/* It says that all slots are at that node, whose id is all of that letter. */
static void says_all_at(size_t which, const struct fake_node *owner, char letter, unsigned int epoch)
{
    char id[CLUSTER_ID_MAX];

    memset(id, letter, sizeof(id) - 1);
    id[sizeof(id) - 1] = '\0';
    snprintf(world.nodes[which].slots, TEXT_MAX,
             "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:%u\r\n$40\r\n%s\r\n*0\r\n", owner->port, id);
    world.nodes[which].epoch = epoch;
}

/* ---- the watch ---- */

static void on_changed(void *context, struct cluster_map *map)
{
    (void)context;
    world.changes++;
    cluster_map_release(world.map);
    world.map = cluster_map_reference(map);
}

static void setup(void)
{
    cr_assert(reactor_init(&world.reactor, &world.stats));
    world.conf =
        (struct conf){.upstream_user = "", .upstream_password = "", .connect_timeout = 1000, .reconnect_max = 200};
    world.conf.upstream = (struct conf_address){.topology = CONF_TOPOLOGY_CLUSTER, .text = "cluster://test"};
    for (size_t i = 0; i < NODES; i++) {
        node_start(&world.nodes[i]);
        world.seeds[i] = (struct conf_address){.host = "127.0.0.1", .port = world.nodes[i].port};
    }
}

static void start(size_t seeds)
{
    const struct cluster_watch_settings settings = {.conf = &world.conf, .changed = on_changed};

    world.conf.upstream.seeds = world.seeds;
    world.conf.upstream.seed_count = seeds;
    world.watch = cluster_watch_new(&world.reactor, &settings);
    cr_assert_not_null(world.watch);
}

/* Nodes see that those who asked have gone; libevent frees what it has of them in the turn after that. */
static void end_connections(void)
{
    for (int turns = 0; turns < 1000 && world.connections > 0; turns++) {
        event_base_loop(world.reactor.base, EVLOOP_NONBLOCK);
    }
    cr_assert_eq(world.connections, 0);
    event_base_loop(world.reactor.base, EVLOOP_NONBLOCK);
}

static void teardown(void)
{
    if (world.watch != NULL)
        cluster_watch_free(world.watch);
    end_connections();
    cluster_map_release(world.map);
    for (size_t i = 0; i < NODES; i++) {
        if (world.nodes[i].listener != NULL)
            node_stop(&world.nodes[i]);
    }
    reactor_free(&world.reactor);
}

static bool has_changed(size_t times)
{
    return world.changes >= times;
}

static bool has_failed(size_t times)
{
    return cluster_watch_tell(world.watch)->failed >= times;
}

static bool has_asked(size_t rounds)
{
    return cluster_watch_tell(world.watch)->rounds >= rounds;
}

static void on_time(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
}

static void turn_until(bool (*is_so)(size_t count), size_t count)
{
    int64_t deadline = clock_now_us() + PATIENCE_US;
    struct event *tick = event_new(world.reactor.base, -1, EV_PERSIST, on_time, NULL);
    const struct timeval often = {.tv_usec = 10000};

    event_add(tick, &often);
    while (!is_so(count)) {
        cr_assert(reactor_turn(&world.reactor));
        cr_assert_lt(clock_now_us(), deadline, "%s", cluster_watch_tell(world.watch)->why);
    }
    event_free(tick);
}

static uint16_t owner_port(void)
{
    return world.map->nodes[world.map->owner[0]].port;
}

TestSuite(cluster_watch, .init = setup, .fini = teardown, .timeout = 60);

Test(cluster_watch, a_seed_that_hangs_costs_no_timeout)
{
    world.conf.connect_timeout = 3600000;
    world.nodes[0].hangs = true;
    says_all_at(1, &world.nodes[1], 'a', 1);
    start(2);
    turn_until(has_changed, 1);
    cr_assert_eq(owner_port(), world.nodes[1].port);
}

Test(cluster_watch, the_highest_epoch_is_believed)
{
    says_all_at(0, &world.nodes[0], 'a', 5);
    says_all_at(1, &world.nodes[0], 'a', 5);
    says_all_at(2, &world.nodes[3], 'a', 6);
    snprintf(
        world.nodes[2].slots, TEXT_MAX,
        "*2\r\n*3\r\n:0\r\n:99\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n*3\r\n:100\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n"
        ":%u\r\n",
        world.nodes[3].port, world.nodes[0].port);
    start(3);
    turn_until(has_changed, 1);
    cr_assert_eq(owner_port(), world.nodes[3].port);
}

Test(cluster_watch, what_has_not_changed_is_not_handed_out)
{
    says_all_at(0, &world.nodes[0], 'a', 1);
    start(1);
    turn_until(has_changed, 1);
    world.nodes[0].epoch = 9;
    for (size_t i = 0; i < 3; i++) {
        cluster_watch_soon(world.watch);
        turn_until(has_asked, cluster_watch_tell(world.watch)->rounds + 1);
    }
    cr_assert_eq(world.changes, 1);
}

/* However many ask: a request is no reason for a question. */
Test(cluster_watch, those_who_ask_do_not_make_a_storm)
{
    says_all_at(0, &world.nodes[0], 'a', 1);
    start(1);
    turn_until(has_changed, 1);
    int64_t begun = clock_now_us();
    while (cluster_watch_tell(world.watch)->rounds < 4) {
        for (int i = 0; i < 1000; i++)
            cluster_watch_soon(world.watch);
        turn_until(has_asked, cluster_watch_tell(world.watch)->rounds + 1);
    }
    cr_assert_gt(clock_now_us() - begun, 250000);
}

Test(cluster_watch, who_has_heard_less_is_not_believed)
{
    says_all_at(0, &world.nodes[0], 'a', 5);
    start(1);
    turn_until(has_changed, 1);
    says_all_at(0, &world.nodes[1], 'a', 4);
    cluster_watch_soon(world.watch);
    turn_until(has_failed, 1);
    cr_assert_eq(world.changes, 1);
    cr_assert_eq(owner_port(), world.nodes[0].port);
}

/* Its address is another cluster's now; the others of ours still answer. */
Test(cluster_watch, a_stranger_is_not_believed)
{
    says_all_at(0, &world.nodes[0], 'a', 5);
    start(2);
    says_all_at(1, &world.nodes[0], 'a', 5);
    turn_until(has_changed, 1);
    says_all_at(0, &world.nodes[2], 'z', 99);
    while (cluster_watch_tell(world.watch)->strangers < 2) {
        cluster_watch_soon(world.watch);
        turn_until(has_asked, cluster_watch_tell(world.watch)->rounds + 1);
    }
    cr_assert_eq(world.changes, 1);
    cr_assert_eq(owner_port(), world.nodes[0].port);
}

/* Nobody speaks of the old one any more, and the operator's seeds speak of another. */
Test(cluster_watch, a_cluster_that_was_replaced_is_believed_in_the_end)
{
    says_all_at(0, &world.nodes[0], 'a', 50);
    start(1);
    turn_until(has_changed, 1);
    int64_t begun = clock_now_us();
    says_all_at(0, &world.nodes[0], 'z', 1);
    cluster_watch_soon(world.watch);
    turn_until(has_changed, 2);
    cr_assert_gt(clock_now_us() - begun, 9000000);
    cr_assert_eq(world.map->nodes[0].id[0], 'z');
}

Test(cluster_watch, ends_with_questions_under_way)
{
    world.conf.connect_timeout = 3600000;
    for (size_t i = 0; i < NODES; i++)
        world.nodes[i].hangs = true;
    start(NODES);
    reactor_turn(&world.reactor);
    cr_assert_eq(world.changes, 0);
}

static const char *refuse_all(void *context, const struct sockaddr *address)
{
    (void)context;
    (void)address;
    return "it leads to Headgate itself";
}

Test(cluster_watch, addresses_that_will_not_do_are_not_asked)
{
    const struct cluster_watch_settings settings = {.conf = &world.conf, .changed = on_changed, .refuses = refuse_all};

    says_all_at(0, &world.nodes[0], 'a', 1);
    world.conf.upstream.seeds = world.seeds;
    world.conf.upstream.seed_count = 1;
    world.watch = cluster_watch_new(&world.reactor, &settings);
    turn_until(has_failed, 1);
    cr_assert_eq(world.nodes[0].asked, 0);
    cr_assert_not_null(strstr(cluster_watch_tell(world.watch)->why, "Headgate itself"));
}
