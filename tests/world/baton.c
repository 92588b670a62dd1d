/* Who goes on next, and when: shared by the launcher and by what is preloaded. */
#include "world.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const wait_names[WAIT_NAMES] = {"turn", "ready", "woken", "time", "change"};

/* SplitMix64. */
uint64_t world_draw(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

bool world_chance(struct world *world, int64_t permille)
{
    return permille > 0 && world_draw(&world->random) % 1000 < (uint64_t)permille;
}

/* ---- processes and threads ---- */

int world_take_process(struct world *world, int pid)
{
    for (int i = 0; i < WORLD_PROCESSES; i++) {
        struct process *process = &world->processes[i];
        if (!process->used) {
            *process = (struct process){.used = true, .pid = pid, .parent = -1};
            process->random = world->seed ^ (++world->process_serial << 32);
            world->process_count = i >= world->process_count ? i + 1 : world->process_count;
            return i;
        }
    }
    return -1;
}

int world_take_thread(struct world *world, int process)
{
    for (int i = 0; i < WORLD_THREADS; i++) {
        struct thread *thread = &world->threads[i];
        if (!thread->used) {
            *thread = (struct thread){.used = true, .generation = thread->generation + 1, .process = process};
            thread->deadline = NEVER;
            thread->last_turn = world->turn;
            world->thread_count = i >= world->thread_count ? i + 1 : world->thread_count;
            return i;
        }
    }
    return -1;
}

void world_free_thread(struct thread *thread)
{
    thread->used = false;
    thread->generation++;
}

void world_free_threads(struct world *world, int process, int but)
{
    for (int i = 0; i < world->thread_count; i++) {
        if (world->threads[i].used && world->threads[i].process == process && i != but) {
            world_free_thread(&world->threads[i]);
        }
    }
}

int world_process_of(const struct world *world, int pid)
{
    for (int i = 0; i < world->process_count; i++) {
        if (world->processes[i].used && world->processes[i].pid == pid) {
            return i;
        }
    }
    return -1;
}

void world_bury(struct world *world, int pid)
{
    int handle = (int)kernel(SYS_pidfd_open, pid, 0), process = world_process_of(world, pid);

    if (handle >= 0) { /* a zombie has closed all its descriptors */
        struct pollfd dead = {.fd = handle, .events = POLLIN};
        while (kernel(SYS_poll, &dead, 1, -1) < 0 && errno == EINTR) {
        }
        kernel(SYS_close, handle);
    }
    if (process >= 0) {
        int parent = world->processes[process].parent;
        bool is_told = parent >= 0 && (world->processes[parent].handled & SIGNAL_BIT(SIGCHLD)) != 0;
        if (is_told) {
            world->processes[parent].pending |= SIGNAL_BIT(SIGCHLD);
        }
        world_free_threads(world, process, -1);
        world->processes[process].used = false;
    }
    world->is_dirty = true;
    world->progress++;
}

/* ---- picking ---- */

/* The kernel delivers in order what one processor has sent on loopback: when a datagram is here, so is all before it.
 */
static void settle_network(struct world *world)
{
    char byte = 0;

    if (world->is_dirty) {
        world->is_dirty = false;
        if (kernel(SYS_sendto, PROBE_FD, &byte, 1, 0, NULL, 0) == 1) {
            while (kernel(SYS_recvfrom, PROBE_FD, &byte, 1, 0, NULL, NULL) < 0 && errno == EINTR) {
            }
        }
    }
}

static void look_at_descriptors(struct world *world)
{
    struct epoll_event events[WORLD_THREADS];
    int count = (int)kernel(SYS_epoll_wait, READY_FD, events, WORLD_THREADS, 0);

    world->looks++;
    for (int i = 0; i < count; i++) {
        struct thread *thread = &world->threads[events[i].data.u64 & (WORLD_THREADS - 1)];
        if (events[i].data.u64 == TICKET(thread - world->threads, thread->generation, thread->watched)) {
            thread->seen = world->looks;
        }
    }
}

static bool can_go_on(const struct world *world, const struct thread *thread)
{
    if (thread->deadline <= world->now || (thread->is_main && world->processes[thread->process].pending != 0)) {
        return true;
    }
    return thread->wait == WAIT_TURN || (thread->wait == WAIT_READY && thread->seen == world->looks) ||
           (thread->wait == WAIT_WOKEN && thread->is_woken) ||
           (thread->wait == WAIT_CHANGE && thread->tried != world->progress);
}

/* Whether it has to wait though it could go on. It is drawn once for each wait. */
static bool is_late(struct world *world, struct thread *thread)
{
    const struct process *process = &world->processes[thread->process];

    if (!thread->is_drawn && process->late_permille > 0) {
        bool is_late = world_chance(world, process->late_permille);
        thread->is_drawn = true;
        thread->late_until =
            is_late ? world->now + (int64_t)(world_draw(&world->random) % (uint64_t)(process->late_us * 1000 + 1)) : 0;
    }
    return thread->is_drawn && thread->late_until > world->now;
}

/* When the next alarm rings. */
static int64_t ring_alarms(struct world *world)
{
    int64_t next = NEVER;

    for (int i = 0; i < world->process_count; i++) {
        struct process *process = &world->processes[i];
        if (!process->used || process->alarm_ns == 0) {
            continue;
        }
        if (process->alarm_ns <= world->now) {
            process->pending |= SIGNAL_BIT(SIGALRM);
            process->alarm_ns = process->alarm_interval > 0 ? world->now + process->alarm_interval : 0;
        }
        next = process->alarm_ns != 0 && process->alarm_ns < next ? process->alarm_ns : next;
    }
    return next;
}

void world_give_baton(struct world *world, int thread)
{
    world->baton = thread;
    __atomic_store_n(&world->threads[thread].go, 1, __ATOMIC_RELEASE);
    kernel(SYS_futex, &world->threads[thread].go, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void world_hand_over(struct world *world, int process)
{
    world_free_threads(world, process, -1);
    world->dying = world->processes[process].pid;
    for (int i = 0; i < world->thread_count; i++) {
        if (world->threads[i].used && !world->processes[world->threads[i].process].is_paused) {
            world_give_baton(world, i);
            return;
        }
    }
}

/* Those whose last turn has come. */
static void kill_those_due(struct world *world, int self)
{
    for (int i = 0; i < world->process_count; i++) {
        struct process *process = &world->processes[i];
        if (!process->used || process->last_turn == 0 || process->last_turn > world->turn) {
            continue;
        }
        process->last_turn = 0;
        world->kills++;
        if (i != self) {
            kernel(SYS_kill, process->pid, SIGKILL);
            world_bury(world, process->pid);
            continue;
        }
        world_hand_over(world, i);
        kernel(SYS_kill, process->pid, SIGKILL);
        kernel(SYS_pause);
    }
}

/* Of those that can go on now: the one that has waited longest, or with a seed any. -1: none; next is when one can. */
static int choose(struct world *world, int64_t *next)
{
    int ready[WORLD_THREADS], count = 0, best = 0;

    for (int i = 0; i < world->thread_count; i++) {
        struct thread *thread = &world->threads[i];
        if (!thread->used || world->processes[thread->process].is_paused) {
            continue;
        }
        bool can = can_go_on(world, thread);
        if (can && !is_late(world, thread)) {
            best = count == 0 || thread->last_turn < world->threads[ready[best]].last_turn ? count : best;
            ready[count++] = i;
        } else {
            int64_t then = can ? thread->late_until : thread->deadline;
            *next = then < *next ? then : *next;
        }
    }
    if (count > 1 && world->seed != 0) {
        best = (int)(world_draw(&world->random) % (uint64_t)count);
    }
    return count > 0 ? ready[best] : -1;
}

int world_pick(struct world *world, int self)
{
    kill_those_due(world, self);
    for (;;) {
        int64_t next = ring_alarms(world);
        settle_network(world);
        look_at_descriptors(world);
        int chosen = choose(world, &next);
        if (chosen >= 0 || next == NEVER) {
            return chosen;
        }
        world->now = next;
    }
}

void world_show(const struct world *world)
{
    fprintf(stderr, "world: %.6f s, turn %llu, baton %d, dying %d\n", (double)world->now / (double)SECOND,
            (unsigned long long)world->turn, world->baton, world->dying);
    for (int i = 0; i < world->thread_count; i++) {
        const struct thread *thread = &world->threads[i];
        const struct process *process = &world->processes[thread->process];
        if (thread->used) {
            fprintf(stderr, "world: thread %d: process %d %s, tid %d, waits for %s until %.6f, signals %llx%s\n", i,
                    process->pid, process->name, thread->tid, wait_names[thread->wait],
                    thread->deadline == NEVER ? -1.0 : (double)thread->deadline / (double)SECOND,
                    (unsigned long long)process->pending, process->is_paused ? ", paused" : "");
        }
    }
}
