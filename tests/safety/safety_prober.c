#include "safety_prober.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* So many that each worker of a Headgate is likely to have one; how they are dealt out is Headgate's affair. */
#define PROBES_OF_ONE 12u
#define PROBES_MAX (HEADGATES_MAX * PROBES_OF_ONE)
#define PAUSE_US 20000
#define STALL_US 50000
#define TURN_MS 5

static const char question[] = "GET probe\r\n";

struct probe {
    unsigned headgate;
    int fd;
    bool asked;
    int64_t since_us; /* when it was asked, or has to be; when trouble began if there is no connection */
};

static void probe_end_stall(struct shared *shared, const struct probe *probe, int64_t now)
{
    if (now - probe->since_us < STALL_US)
        return;
    struct trouble *trouble = shared_trouble(shared, TROUBLE_STALL, probe->headgate, probe->since_us);
    shared_count(shared, FIGURE_STALLS);
    if (trouble != NULL)
        atomic_store(&trouble->end_us, now);
}

/* The time of the question stays what it was: it has not been answered. */
static void probe_lose(struct probe *probe)
{
    close(probe->fd);
    probe->fd = -1;
    probe->asked = false;
}

static void probe_ask(struct shared *shared, struct probe *probe, int64_t now)
{
    if (probe->fd < 0) {
        probe->fd = process_connect(shared->headgate_ports[probe->headgate]);
        if (probe->fd < 0)
            return;
        fcntl(probe->fd, F_SETFL, O_NONBLOCK);
    } else if (now < probe->since_us) {
        return;
    }
    if (send(probe->fd, question, sizeof question - 1, MSG_NOSIGNAL) != sizeof question - 1)
        probe_lose(probe);
    else
        probe->asked = true;
}

static void probe_read(struct shared *shared, struct probe *probe, int64_t now)
{
    char answer[256];
    ssize_t got = recv(probe->fd, answer, sizeof answer, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        probe_lose(probe);
        return;
    }
    /* An error says that Redis is away: that is no answer. */
    if (answer[0] == '$') {
        probe_end_stall(shared, probe, now);
        probe->since_us = now + PAUSE_US;
    }
    probe->asked = false;
}

static void prober_run(struct shared *shared, struct probe *probes, unsigned count)
{
    while (atomic_load(&shared->phase) != PHASE_STOP) {
        struct pollfd polled[PROBES_MAX];
        for (unsigned at = 0; at < count; at++) {
            if (!probes[at].asked)
                probe_ask(shared, &probes[at], now_us());
            polled[at] = (struct pollfd){.fd = probes[at].fd, .events = POLLIN};
        }
        if (poll(polled, count, TURN_MS) <= 0)
            continue;
        for (unsigned at = 0; at < count; at++)
            if (polled[at].revents != 0)
                probe_read(shared, &probes[at], now_us());
    }
    /* What was not answered to the end is a stall as well. */
    for (unsigned at = 0; at < count; at++)
        probe_end_stall(shared, &probes[at], now_us());
}

pid_t prober_start(struct shared *shared)
{
    struct probe probes[PROBES_MAX];
    unsigned count = shared->options.headgates * PROBES_OF_ONE;
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned at = 0; at < count; at++)
        probes[at] = (struct probe){.headgate = at / PROBES_OF_ONE, .fd = -1, .since_us = now_us()};
    prober_run(shared, probes, count);
    _exit(0);
}
