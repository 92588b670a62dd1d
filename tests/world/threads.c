/* Threads and processes: they come, go, wait for each other, and signal each other. */
#include "preload.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern pid_t __libc_fork(void);

struct world *world;
__thread int self = -1;
/* The path of this library, for programs that are started with an environment of their own. */
static char library[PATH_MAX];
static pthread_key_t leaving;

/* ---- the baton ---- */

static void note_turn(void)
{
    struct step step = {.now = world->now, .thread = self, .wait = (int)own()->wait};

    world->steps[world->turn++ % WORLD_STEPS] = step;
    world->order = (world->order ^ (uint64_t)step.now) * UINT64_C(0x100000001b3);
    world->order = (world->order ^ (uint64_t)(step.thread << 4 | step.wait)) * UINT64_C(0x100000001b3);
}

/* Gives the baton to whoever can go on; true: that is this thread. */
static bool pass(void)
{
    int next = world_pick(world, own()->process);

    if (next < 0) {
        world->is_stuck = true; /* the launcher ends the world */
        kernel(SYS_pause);
    }
    if (next != self) {
        world_give_baton(world, next);
    }
    return next == self;
}

static void await_baton(void)
{
    struct thread *thread = own();

    do {
        while (__atomic_load_n(&thread->go, __ATOMIC_ACQUIRE) == 0) {
            kernel(SYS_futex, &thread->go, FUTEX_WAIT, 0, NULL, NULL, 0);
        }
        thread->go = 0;
        if (world->dying == 0) {
            return;
        }
        world_bury(world, world->dying);
        world->dying = 0;
    } while (!pass());
}

static bool deliver_signals(void)
{
    struct process *process = own_process();
    bool any = false;

    while (own()->is_main && process->pending != 0) {
        int number = __builtin_ctzll(process->pending) + 1;
        __atomic_and_fetch(&process->pending, ~SIGNAL_BIT(number), __ATOMIC_SEQ_CST);
        kernel(SYS_tgkill, process->pid, own()->tid, number);
        any = true;
    }
    return any;
}

static void begin_turn(bool is_other)
{
    struct thread *thread = own();

    if (is_other || thread->wait != WAIT_TURN) { /* sanitizers spin for what the kernel does in real time */
        note_turn();
    }
    world->now += world->turn_ns;
    world->progress += thread->wait != WAIT_CHANGE;
    thread->deadline = NEVER;
    thread->last_turn = world->turn;
    thread->is_woken = false;
}

bool give_way(enum wait wait, int64_t deadline)
{
    struct thread *thread = own();

    thread->wait = wait;
    thread->deadline = deadline;
    thread->is_drawn = false;
    bool is_other = !pass();
    if (is_other) {
        await_baton();
    }
    begin_turn(is_other);
    return deliver_signals();
}

void maybe_yield(void)
{
    if (is_inside() && world_chance(world, world->yield_permille)) {
        (void)give_way(WAIT_TURN, NEVER);
    }
}

/* ---- processes come and go ---- */

static void thread_leaves(void *unused)
{
    (void)unused;
    if (is_inside()) {
        world_free_thread(own());
        world->progress++;
        self = -1;
        int next = world_pick(world, -1);
        if (next >= 0) {
            world_give_baton(world, next);
        }
    }
}

static void process_leaves(void)
{
    if (is_inside() && world->baton == self) {
        int process = own()->process;
        self = -1;
        if (!world->processes[process].is_root) { /* with that one the launcher ends all others */
            world_hand_over(world, process);
        }
    }
}

static void take_part(int thread)
{
    self = thread;
    own()->tid = (int)kernel(SYS_gettid);
    own()->handle = (uint64_t)pthread_self();
    pthread_setspecific(leaving, world);
}

/* What a program that is started closes on the way here, the launcher has, too: it is process 1. */
static void recover_descriptors(void)
{
    int launcher = (int)kernel(SYS_pidfd_open, 1, 0);

    for (int fd = READY_FD; fd <= WORLD_FD; fd++) {
        if (kernel(SYS_fcntl, fd, F_GETFD) < 0) {
            int copy = (int)kernel(SYS_pidfd_getfd, launcher, fd, 0);
            kernel(SYS_dup3, copy, fd, 0);
            kernel(SYS_close, copy);
        }
    }
    kernel(SYS_close, launcher);
}

__attribute__((constructor(101))) static void process_comes(void)
{
    if (getenv("HEADGATE_WORLD") == NULL) {
        return;
    }
    recover_descriptors();
    struct world *mapped = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, WORLD_FD, 0);
    Dl_info info;
    if (mapped == MAP_FAILED || dladdr((void *)process_comes, &info) == 0) {
        abort();
    }
    snprintf(library, sizeof library, "%s", info.dli_fname);
    pthread_key_create(&leaving, thread_leaves);
    world = mapped;
    /* By exec it has the baton; what posix_spawn() of its owner starts has not, and is not known yet. */
    int thread = world->baton, process = thread >= 0 ? world->threads[thread].process : -1;
    bool has_baton = process >= 0 && world->processes[process].pid != getppid();
    if (has_baton) {
        world_free_threads(world, process, thread);
        world->processes[process].handled = 0;
    } else {
        process = world_take_process(world, getpid());
        world->processes[process].parent = world_process_of(world, getppid());
        thread = world_take_thread(world, process);
    }
    struct process *own_one = &world->processes[process];
    snprintf(own_one->name, sizeof own_one->name, "%s", program_invocation_short_name);
    bool may_be_late = world->late_names[0] == '\0' || strstr(world->late_names, own_one->name) != NULL;
    own_one->late_us = world->late_us;
    own_one->late_permille = may_be_late ? world->late_permille : 0;
    world->threads[thread].is_main = true;
    take_part(thread);
    atexit(process_leaves);
    if (!has_baton) {
        await_baton();
        begin_turn(true);
    }
}

EXPORT void _exit(int status)
{
    process_leaves();
    kernel(SYS_exit_group, status);
    __builtin_unreachable();
}

EXPORT void _Exit(int status)
{
    _exit(status);
}

EXPORT pid_t fork(void)
{
    if (!is_inside()) {
        return __libc_fork();
    }
    int index = world_take_process(world, -1), thread = world_take_thread(world, index);
    struct process *child = &world->processes[index];
    struct process before = *child;
    *child = *own_process();
    child->pid = -1;
    child->parent = own()->process;
    child->random = before.random;
    child->pending = child->last_turn = 0;
    child->alarm_ns = 0;
    child->is_root = false;
    world->threads[thread].is_main = true;
    pid_t pid = __libc_fork();
    if (pid == 0) {
        take_part(thread);
        await_baton();
        begin_turn(true);
    } else if (pid > 0) {
        child->pid = pid;
    } else {
        world_free_thread(&world->threads[thread]);
        child->used = false;
    }
    return pid;
}

EXPORT pid_t vfork(void)
{
    return fork();
}

/* A program that is started with an environment of its own stays in the world. What others preload comes first. */
EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
    char *made[4096] = {(char *)"HEADGATE_WORLD=1"}, preload[PATH_MAX * 2];
    const char *others = NULL;
    size_t count = 2;

    if (world == NULL || envp == NULL) {
        return (int)kernel(SYS_execve, path, argv, envp);
    }
    for (; *envp != NULL && count < 4000; envp++) {
        bool is_preload = strncmp(*envp, "LD_PRELOAD=", 11) == 0;
        if (is_preload && strstr(*envp, library) == NULL) {
            others = *envp + 11;
        } else if (!is_preload && strncmp(*envp, "HEADGATE_WORLD=", 15) != 0) {
            made[count++] = *envp;
        }
    }
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s%s%s", others != NULL ? others : "", others != NULL ? ":" : "",
             library);
    made[1] = preload;
    return (int)kernel(SYS_execve, path, argv, made);
}

/* The child takes part, or is dead, when this returns. */
#define SPAWN(name)                                                                                                    \
    EXPORT int name(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *actions,         \
                    const posix_spawnattr_t *restrict attributes, char *const argv[restrict],                          \
                    char *const envp[restrict])                                                                        \
    {                                                                                                                  \
        pid_t child;                                                                                                   \
        siginfo_t info = {0};                                                                                          \
        int status = REAL(name)(&child, path, actions, attributes, argv, envp);                                        \
        while (is_inside() && status == 0 && world_process_of(world, child) < 0 && info.si_pid == 0) {                 \
            kernel(SYS_waitid, P_PID, child, &info, WEXITED | WNOHANG | WNOWAIT, NULL);                                \
            kernel(SYS_sched_yield);                                                                                   \
        }                                                                                                              \
        if (pid != NULL && status == 0) {                                                                              \
            *pid = child;                                                                                              \
        }                                                                                                              \
        return status;                                                                                                 \
    }
SPAWN(posix_spawn)
SPAWN(posix_spawnp)

/* ---- threads ---- */

struct birth {
    void *(*run)(void *);
    void *argument;
    int thread;
};

static void *live(void *context)
{
    struct birth birth = *(struct birth *)context;

    free(context);
    take_part(birth.thread);
    await_baton();
    begin_turn(true);
    return birth.run(birth.argument);
}

EXPORT int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*run)(void *),
                          void *restrict argument)
{
    if (!is_inside()) {
        return REAL(pthread_create)(thread, attributes, run, argument);
    }
    struct birth *birth = malloc(sizeof *birth);
    int number = world_take_thread(world, own()->process);
    *birth = (struct birth){run, argument, number};
    int status = REAL(pthread_create)(thread, attributes, live, birth);
    if (status != 0) {
        world_free_thread(&world->threads[number]);
        free(birth);
    } else {
        world->threads[number].handle = (uint64_t)*thread;
    }
    return status;
}

static bool has_left(pthread_t handle)
{
    for (int i = 0; i < world->thread_count; i++) {
        const struct thread *thread = &world->threads[i];
        if (thread->used && thread->process == own()->process && thread->handle == (uint64_t)handle) {
            return false;
        }
    }
    return true;
}

EXPORT int pthread_join(pthread_t thread, void **result)
{
    if (is_inside()) {
        (void)AWAIT(has_left(thread), NEVER);
    }
    return REAL(pthread_join)(thread, result);
}

/* Lets the thread go on that waits longest for that, or all of them. */
static void wake(const void *address, bool all)
{
    struct thread *first;

    do {
        first = NULL;
        for (int i = 0; i < world->thread_count; i++) {
            struct thread *thread = &world->threads[i];
            bool waits = thread->used && thread->wait == WAIT_WOKEN && !thread->is_woken &&
                         thread->process == own()->process && thread->address == (uint64_t)address;
            first = waits && (first == NULL || thread->last_turn < first->last_turn) ? thread : first;
        }
        if (first != NULL) {
            first->is_woken = true;
        }
    } while (first != NULL && all);
}

/* Tries until it is free. */
#define LOCK(try, lock, until)                                                                                         \
    ({                                                                                                                 \
        int taken = (try)(lock);                                                                                       \
        if (taken == EBUSY) {                                                                                          \
            (void)AWAIT((taken = (try)(lock)) != EBUSY, until);                                                        \
        }                                                                                                              \
        taken == EBUSY ? ETIMEDOUT : taken;                                                                            \
    })

EXPORT int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (!is_inside()) {
        return REAL(pthread_mutex_lock)(mutex);
    }
    maybe_yield();
    return LOCK(pthread_mutex_trylock, mutex, NEVER);
}

EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    return is_inside() ? LOCK(pthread_rwlock_tryrdlock, lock, NEVER) : REAL(pthread_rwlock_rdlock)(lock);
}

EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    return is_inside() ? LOCK(pthread_rwlock_trywrlock, lock, NEVER) : REAL(pthread_rwlock_wrlock)(lock);
}

static int await_condition(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t deadline)
{
    pthread_mutex_unlock(mutex);
    own()->address = (uint64_t)condition;
    (void)give_way(WAIT_WOKEN, deadline);
    bool is_late = world->now >= deadline;
    pthread_mutex_lock(mutex);
    return is_late ? ETIMEDOUT : 0;
}

EXPORT int pthread_cond_wait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex)
{
    return is_inside() ? await_condition(condition, mutex, NEVER) : REAL(pthread_cond_wait)(condition, mutex);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                                  const struct timespec *restrict end)
{
    return is_inside() ? await_condition(condition, mutex, deadline_of(end))
                       : REAL(pthread_cond_timedwait)(condition, mutex, end);
}

EXPORT int pthread_cond_signal(pthread_cond_t *condition)
{
    if (!is_inside()) {
        return REAL(pthread_cond_signal)(condition);
    }
    wake(condition, false);
    return 0;
}

EXPORT int pthread_cond_broadcast(pthread_cond_t *condition)
{
    if (!is_inside()) {
        return REAL(pthread_cond_broadcast)(condition);
    }
    wake(condition, true);
    return 0;
}

static int await_semaphore(sem_t *semaphore, int64_t deadline)
{
    while (sem_trywait(semaphore) != 0) {
        bool is_late = world->now >= deadline;
        own()->address = (uint64_t)semaphore;
        if (is_late || give_way(WAIT_WOKEN, deadline)) {
            errno = is_late ? ETIMEDOUT : EINTR;
            return -1;
        }
    }
    return 0;
}

EXPORT int sem_wait(sem_t *semaphore)
{
    return is_inside() ? await_semaphore(semaphore, NEVER) : REAL(sem_wait)(semaphore);
}

EXPORT int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict end)
{
    return is_inside() ? await_semaphore(semaphore, deadline_of(end)) : REAL(sem_timedwait)(semaphore, end);
}

EXPORT int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict end)
{
    return is_inside() ? await_semaphore(semaphore, deadline_of(end)) : REAL(sem_clockwait)(semaphore, clock, end);
}

EXPORT int sem_post(sem_t *semaphore)
{
    int status = REAL(sem_post)(semaphore);

    if (is_inside()) {
        wake(semaphore, false);
    }
    return status;
}

/* ---- children and signals ---- */

/* Asks without waiting, again whenever anything has happened. found: 0 while there is none. */
#define AWAIT_CHILD(ask, found, is_patient)                                                                            \
    ({                                                                                                                 \
        bool is_interrupted = !(is_patient) && give_way(WAIT_TURN, NEVER); /* some ask again and again */              \
        long asked = (ask);                                                                                            \
        while (asked == 0 && (found) == 0 && (is_patient) && !is_interrupted) {                                        \
            own()->tried = world->progress;                                                                            \
            is_interrupted = give_way(WAIT_CHANGE, NEVER);                                                             \
            asked = (ask);                                                                                             \
        }                                                                                                              \
        world->progress++;                                                                                             \
        if (asked == 0 && (found) == 0 && (is_patient)) {                                                              \
            errno = EINTR;                                                                                             \
            asked = -1;                                                                                                \
        }                                                                                                              \
        asked;                                                                                                         \
    })

EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    if (!is_inside()) {
        return (pid_t)kernel(SYS_wait4, pid, status, options, usage);
    }
    return (pid_t)AWAIT_CHILD(kernel(SYS_wait4, pid, status, options | WNOHANG, usage), 0, (options & WNOHANG) == 0);
}

EXPORT pid_t waitpid(pid_t pid, int *status, int options)
{
    return wait4(pid, status, options, NULL);
}

EXPORT pid_t wait3(int *status, int options, struct rusage *usage)
{
    return wait4(-1, status, options, usage);
}

EXPORT pid_t wait(int *status)
{
    return wait4(-1, status, 0, NULL);
}

EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    if (!is_inside()) {
        return (int)kernel(SYS_waitid, type, id, info, options, NULL);
    }
    info->si_pid = 0;
    return (int)AWAIT_CHILD(kernel(SYS_waitid, type, id, info, options | WNOHANG, NULL), info->si_pid,
                            (options & WNOHANG) == 0);
}

static struct sigaction handlers[NSIG];

/* A handler may wait, so its process must have the baton. Of the end of a child the process learns once that is buried,
 * and not when the kernel says so. */
static void take_signal(int number, siginfo_t *info, void *context)
{
    bool is_ours = !is_inside() || (world->baton == self && (number != SIGCHLD || info->si_code == SI_TKILL));

    if (is_ours && (handlers[number].sa_flags & SA_SIGINFO) != 0) {
        handlers[number].sa_sigaction(number, info, context);
    } else if (is_ours) {
        handlers[number].sa_handler(number);
    } else if (number != SIGCHLD) {
        __atomic_or_fetch(&own_process()->pending, SIGNAL_BIT(number), __ATOMIC_SEQ_CST);
    }
}

/* What the processor says, sanitizers want to hear at once. */
static bool is_handled(int number, const struct sigaction *wanted)
{
    return wanted->sa_handler != SIG_DFL && wanted->sa_handler != SIG_IGN && number != SIGSEGV && number != SIGBUS &&
           number != SIGFPE && number != SIGILL && number != SIGABRT;
}

EXPORT int sigaction(int number, const struct sigaction *restrict wanted, struct sigaction *restrict before)
{
    bool wraps = wanted != NULL && is_inside() && is_handled(number, wanted);
    struct sigaction last = number > 0 && number < NSIG ? handlers[number] : (struct sigaction){0}, ours, was;

    if (wraps) {
        ours = *wanted;
        ours.sa_sigaction = take_signal;
        ours.sa_flags |= SA_SIGINFO;
        handlers[number] = *wanted;
    }
    int status = REAL(sigaction)(number, wraps ? &ours : wanted, &was);
    if (status == 0 && before != NULL) {
        *before = (was.sa_flags & SA_SIGINFO) != 0 && was.sa_sigaction == take_signal ? last : was;
    }
    if (status == 0 && wanted != NULL && is_inside()) {
        struct process *process = own_process();
        process->handled &= ~SIGNAL_BIT(number);
        process->ignored &= ~SIGNAL_BIT(number);
        process->handled |= wraps ? SIGNAL_BIT(number) : 0;
        process->ignored |= wanted->sa_handler == SIG_IGN ? SIGNAL_BIT(number) : 0;
    }
    return status;
}

EXPORT sighandler_t signal(int number, sighandler_t handler)
{
    struct sigaction wanted = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;

    return sigaction(number, &wanted, &before) == 0 ? before.sa_handler : SIG_ERR;
}

static bool is_blocked(pid_t pid, int number)
{
    char path[64], line[256];
    unsigned long long blocked = 0;

    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && sscanf(line, "SigBlk: %llx", &blocked) != 1) {
    }
    if (file != NULL) {
        fclose(file);
    }
    return (blocked & SIGNAL_BIT(number)) != 0;
}

/* What the signal does is done when this returns; a handler runs when the process has the baton next. */
EXPORT int kill(pid_t pid, int number)
{
    int index = is_inside() && number > 0 && number <= 64 ? world_process_of(world, pid) : -1;

    if (index < 0 || pid == getpid()) {
        return (int)kernel(SYS_kill, pid, number);
    }
    struct process *process = &world->processes[index];
    bool is_nothing = number == SIGCHLD || number == SIGWINCH || number == SIGURG;
    if (number == SIGSTOP || number == SIGCONT) {
        process->is_paused = number == SIGSTOP;
    } else if ((process->handled & SIGNAL_BIT(number)) != 0) {
        process->pending |= SIGNAL_BIT(number);
    } else if ((process->ignored & SIGNAL_BIT(number)) == 0 && !is_nothing) {
        int status = (int)kernel(SYS_kill, pid, number);
        if (status != 0 || (number != SIGKILL && is_blocked(pid, number))) {
            return status;
        }
        world_bury(world, pid);
    }
    return 0;
}

/* ---- past the C library ---- */

static long first_call(long number, ...)
{
    va_list list;
    long a[6];

    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    kernel = (kernel_call *)dlsym(RTLD_NEXT, "syscall");
    return kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
kernel_call *kernel = first_call;

EXPORT long syscall(long number, ...)
{
    va_list list;
    long a[6];

    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    if (world != NULL && number == SYS_clock_gettime) {
        return clock_gettime((clockid_t)a[0], (struct timespec *)a[1]);
    }
    if (is_inside() && number == SYS_getrandom) {
        return (long)getrandom((void *)a[0], (size_t)a[1], (unsigned)a[2]);
    }
    return kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- for the tests: tests/harness/world.py ---- */

/* Figures of the world: seed, now, turns, kills, order. False outside of any. */
EXPORT bool headgate_world(uint64_t figures[5])
{
    if (world == NULL) {
        return false;
    }
    const uint64_t told[] = {world->seed, (uint64_t)world->now, world->turn, world->kills, world->order};
    memcpy(figures, told, sizeof told);
    return true;
}

/* What is to become of that process: its calendar is ahead by so many ns ('s'), its threads are late by up to so many
 * µs in so many of a thousand cases ('l'), it is killed so many turns on ('e'; 0: it is not). False: it is not of this
 * world. */
EXPORT bool headgate_world_change(int pid, char what, int64_t amount, int64_t permille)
{
    int index = world_process_of(world, pid);
    struct process *process = index >= 0 ? &world->processes[index] : NULL;

    if (process != NULL && what == 's') {
        process->skew_ns = amount;
    } else if (process != NULL && what == 'l') {
        process->late_us = amount;
        process->late_permille = permille;
    } else if (process != NULL) {
        process->last_turn = amount > 0 ? world->turn + (uint64_t)amount : 0;
    }
    return process != NULL;
}
