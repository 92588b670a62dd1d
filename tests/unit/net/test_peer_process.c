#include "net/peer_process.h"

#include "base/clock.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* More than are looked at ahead of other processes' descriptors. */
#define MANY 600

/* A child with the far ends of some connections over loopback. */
struct far {
    int near[3];
    size_t count;
    pid_t child;
    int orders; /* a byte: the connections are closed; the end: the child goes */
};

static _Noreturn void live(const struct sockaddr_in *to, size_t others, size_t count, int orders)
{
    int fds[3];
    char order;

    for (size_t i = 0; i < others; i++) {
        if (dup(orders) < 0) {
            _exit(3);
        }
    }
    for (size_t i = 0; i < count; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (fds[i] < 0 || connect(fds[i], (const struct sockaddr *)to, sizeof *to) != 0) {
            _exit(2);
        }
    }
    if (read(orders, &order, 1) == 1) {
        for (size_t i = 0; i < count; i++) {
            close(fds[i]);
        }
        (void)!read(orders, &order, 1);
    }
    _exit(0);
}

/* They come behind so many others of the child's descriptors. */
static struct far open_far_behind(size_t others, size_t count)
{
    struct far far = {.count = count};
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int pipes[2];

    cr_assert_eq(bind(listener, (struct sockaddr *)&own, sizeof own), 0);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&own, &length), 0);
    cr_assert_eq(listen(listener, 3), 0);
    cr_assert_eq(pipe(pipes), 0);
    far.child = fork();
    if (far.child == 0) {
        close(pipes[1]);
        live(&own, others, count, pipes[0]);
    }
    close(pipes[0]);
    far.orders = pipes[1];
    for (size_t i = 0; i < count; i++) {
        far.near[i] = accept(listener, NULL, NULL);
        cr_assert_geq(far.near[i], 0);
    }
    close(listener);
    return far;
}

static void close_far(struct far *far)
{
    close(far->orders);
    kill(far->child, SIGKILL);
    waitpid(far->child, NULL, 0);
    for (size_t i = 0; i < far->count; i++) {
        close(far->near[i]);
    }
}

static struct peer peer_at(int fd)
{
    struct peer peer = {0};
    const char *why = NULL;

    cr_assert(peer_find(fd, &peer, &why), "%s", why);
    return peer;
}

/* However long that takes on a busy machine. */
static enum peer_search find(struct peer_finder *finder, const struct peer *peer, struct peer_process *process,
                             const char **why)
{
    enum peer_search search = PEER_LATER;

    for (int tries = 0; tries < 20000 && search == PEER_LATER; tries++) {
        search = peer_finder_find(finder, peer, process, why);
        if (search == PEER_LATER) {
            usleep(500);
        }
    }
    return search;
}

/* A child with so many descriptors that a search does not get through them at once. */
static pid_t open_crowd(void)
{
    struct rlimit limit;
    int ready[2];
    char byte;

    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        for (int count = 0; count < 15000 && dup(ready[1]) >= 0; count++) {
        }
        (void)!write(ready[1], "", 1);
        for (;;) {
            pause();
        }
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

/* The next one's first descriptors were taken for looked at, and nobody was found to have the connection. */
Test(peer_process, is_found_when_one_before_it_ends_while_it_is_looked_at)
{
    for (int slices = 1; slices <= 3; slices++) {
        struct peer_finder *finder = peer_finder_new();
        struct far far = open_far_behind(MANY, 1);
        pid_t crowd = open_crowd();
        struct peer peer = peer_at(far.near[0]);
        struct peer_process process = {0};
        const char *why = "";
        enum peer_search search = PEER_LATER;
        for (int slice = 0; slice < slices && search == PEER_LATER; slice++) {
            search = peer_finder_find(finder, &peer, &process, &why);
            usleep(5000);
        }
        kill(crowd, SIGKILL);
        waitpid(crowd, NULL, 0);
        search = search == PEER_LATER ? find(finder, &peer, &process, &why) : search;
        cr_expect_eq(search, PEER_FOUND, "%s", why);
        cr_expect_eq(process.pid, far.child);
        close_far(&far);
        peer_finder_free(finder);
    }
}

static void gather(struct peer_finder *finder, const struct peer_process *process)
{
    for (int tries = 0; tries < 20000 && !peer_finder_gather(finder, process); tries++) {
        usleep(500);
    }
}

/* ---- with many descriptors ---- */

static int64_t own_time_us(void)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* However long all of them take; and what is found is what there was at the beginning. */
Test(peer_process, with_many_descriptors_is_looked_at_in_slices)
{
    struct peer_finder *finder = peer_finder_new();
    struct far far = open_far_behind(0, 2);
    struct peer peer = peer_at(far.near[0]), second = peer_at(far.near[1]);
    const char *why = "";
    int64_t before_us = clock_now_us(), longest_us = 0;
    size_t slices = 0;

    struct peer_process process = {.pid = open_crowd()};
    bool done = false;
    for (; !done && slices < 20000; slices++) {
        int64_t start = own_time_us();
        done = peer_finder_gather(finder, &process);
        int64_t took = own_time_us() - start;
        longest_us = took > longest_us ? took : longest_us;
        usleep(done ? 0 : 10000);
    }
    cr_log_info("%zu slices, the longest %lld us", slices, (long long)longest_us);
    cr_expect(done);
    cr_expect(slices > 1 || longest_us <= 10000, "all at once");
    cr_expect(peer_finder_reaches(finder, before_us));
    cr_expect_not(peer_finder_has(finder, &peer), "they are another's");
    kill(process.pid, SIGKILL);
    waitpid(process.pid, NULL, 0);

    cr_assert_eq(find(finder, &peer, &process, &why), PEER_FOUND, "%s", why);
    gather(finder, &process);
    cr_expect(peer_finder_has(finder, &peer));
    cr_expect(peer_finder_has(finder, &second));
    cr_expect_not(peer_finder_reaches(finder, clock_now_us()), "it came later");
    close_far(&far);
    peer_finder_free(finder);
}
