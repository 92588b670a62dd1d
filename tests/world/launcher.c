/*
 * world [OPTION …] COMMAND: runs it in a world of its own (world.h), with a network, a process table, a temporary
 * directory and a processor for itself, and ends whatever it leaves behind. Exit status: the command's; 125: nobody
 * could go on, or the world stood still; 126: a world cannot be made here.
 *
 *   -s SEED     the order of things (0, the default: whoever has waited longest goes on)
 *   -l US,PERMILLE[,NAMES]  in so many of a thousand cases a thread that could go on is late by up to so many µs; only
 *                           those of these programs
 *   -y PERMILLE             others get a turn before so many of a thousand mutexes and writes
 *   -c CPU                  the processor (the first one that may be used)
 *   -d FOLDER               lies at /mnt/project, where the command begins: wherever it is, the order is the same
 *   -r FOLDER               lies at /mnt/results, for what is to be kept
 *   -u NS                   what a turn takes (20000); loads need more
 *   -t FILE                 whose turns came when: the last 260,000
 *   -w SECONDS              of real time that the world may stand still (60)
 *   -v                      figures at the end
 */
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STUCK = 125, NO_WORLD = 126 };

kernel_call *kernel = syscall;
static struct world *world;

static void fail(const char *what)
{
    perror(what);
    exit(NO_WORLD);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        close(fd);
    }
}

/* ---- what a world is made of ---- */

/* A namespace in which that user has the other number. */
static void enter_users(unsigned as_uid, unsigned as_gid, unsigned uid, unsigned gid)
{
    char map[64];

    if (unshare(CLONE_NEWUSER) != 0) {
        fail("a user namespace");
    }
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", as_uid, uid);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1", as_gid, gid);
    write_file("/proc/self/gid_map", map);
}

/* A descriptor gets the number at which all processes look for it. */
static void put_at(int fd, int number)
{
    if (fd < 0 || dup2(fd, number) < 0) {
        fail("a descriptor of the world");
    }
    close(fd);
}

static void make_world(void)
{
    int fd = memfd_create("world", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, sizeof *world) != 0) {
        fail("the world");
    }
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (world == MAP_FAILED) {
        fail("the world");
    }
    put_at(fd, WORLD_FD);
    world->look_ns = 1000;
    world->turn_ns = 20000;
    world->epoch = INT64_C(1800000000) * SECOND;
    world->order = UINT64_C(0xcbf29ce484222325);
    world->baton = -1;
}

static void raise_descriptors(void)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < WORLD_FD + 1024) {
        limit.rlim_cur = limit.rlim_max > 65536 ? 65536 : limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void open_probe(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int probe = socket(AF_INET, SOCK_DGRAM, 0);

    if (bind(probe, (struct sockaddr *)&address, length) != 0 ||
        getsockname(probe, (struct sockaddr *)&address, &length) != 0 ||
        connect(probe, (struct sockaddr *)&address, length) != 0) {
        fail("the probe");
    }
    put_at(probe, PROBE_FD);
    put_at(epoll_create1(0), READY_FD);
}

/* TCP is to know nothing of real time: acknowledgements come at once, windows do not grow by what a clock says. */
static void make_network(void)
{
    static const char *const settings[][2] = {
        {"tcp_moderate_rcvbuf", "0"}, {"tcp_slow_start_after_idle", "0"}, {"tcp_autocorking", "0"},
        {"tcp_no_metrics_save", "1"}, {"tcp_early_retrans", "0"},         {"tcp_congestion_control", "reno"},
    };
    struct ifreq request = {.ifr_name = "lo"};
    char path[128];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    ioctl(fd, SIOCGIFFLAGS, &request);
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) {
        fail("loopback");
    }
    close(fd);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        snprintf(path, sizeof path, "/proc/sys/net/ipv4/%s", settings[i][0]);
        write_file(path, settings[i][1]);
    }
    if (system(
            "ip route replace local 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1 quickack 1 && "
            "ip route replace local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 quickack 1") !=
        0) {
        fail("ip route");
    }
    (void)!system("ip -6 route replace local ::1 dev lo table local proto kernel metric 0 quickack 1 2> /dev/null");
}

static void lay(const char *folder, const char *at)
{
    if (folder != NULL && (mkdir(at, 0755) != 0 || mount(folder, at, NULL, MS_BIND | MS_REC, NULL) != 0)) {
        fail(folder);
    }
}

/* Names of files are the same in each world. The library lies where all users may read it. */
static void make_files(const char *project, const char *results)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("proc", "/proc", "proc", 0, NULL) != 0 ||
        mount("world", "/mnt", "tmpfs", 0, "mode=1777") != 0) {
        fail("mount");
    }
    if (system("cp \"$(dirname $(readlink /proc/$PPID/exe))/libworld.so\" /mnt") != 0) {
        fail("libworld.so");
    }
    lay(project, "/mnt/project");
    lay(results, "/mnt/results");
    if (project != NULL && chdir("/mnt/project") != 0) {
        fail(project);
    }
    setenv("TMPDIR", "/mnt", 1);
}

static void take_processor(int cpu)
{
    cpu_set_t set;

    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; cpu < 0 && i < CPU_SETSIZE; i++) {
        cpu = CPU_ISSET((size_t)i, &set) ? i : -1;
    }
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        fail("the processor");
    }
    personality(ADDR_NO_RANDOMIZE);
}

static pid_t start(char **command)
{
    char preload[PATH_MAX * 2];
    const char *others = getenv("LD_PRELOAD");
    int process = world_take_process(world, -1);
    pid_t pid;

    world->baton = world_take_thread(world, process);
    world->processes[process].is_root = true;
    pid = fork();
    if (pid != 0) {
        return pid;
    }
    world->processes[process].pid = getpid();
    snprintf(preload, sizeof preload, "%s%s/mnt/libworld.so", others != NULL ? others : "", others != NULL ? ":" : "");
    setenv("LD_PRELOAD", preload, 1);
    setenv("HEADGATE_WORLD", "1", 1);
    setenv("PYTHONHASHSEED", "0", 0);
    execvp(command[0], command);
    fail(command[0]);
    return -1;
}

/* ---- while it goes on ---- */

/* The thread that has the baton, as the kernel sees it. */
static void show_call(int tid)
{
    char command[128];

    snprintf(command, sizeof command, "grep -aH . /proc/%d/syscall /proc/%d/wchan >&2", tid, tid);
    (void)!system(command);
}

static bool is_dead(int pid)
{
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd dead = {.fd = handle, .events = POLLIN};
    bool is = handle < 0 || poll(&dead, 1, 0) > 0;

    if (handle >= 0) {
        close(handle);
    }
    return is;
}

/* The thread that has the baton is of a process that was killed from outside, or by itself: the others go on. */
static void go_on_without(int pid)
{
    world_bury(world, pid);
    int next = world_pick(world, -1);
    if (next >= 0) {
        world_give_baton(world, next);
    } else {
        world->is_stuck = true;
    }
}

static int keep(pid_t root, int patience_s)
{
    uint64_t turn = 0;
    int still_ms = 0, status;

    for (;;) {
        if (waitpid(root, &status, WNOHANG) > 0) { /* others stay in /proc, or would be seen to go in real time */
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        usleep(5000);
        still_ms = world->turn == turn ? still_ms + 5 : 0;
        turn = world->turn;
        int baton = world->baton, pid = baton >= 0 ? world->processes[world->threads[baton].process].pid : -1;
        if (still_ms >= 50 && still_ms % 50 == 0 && pid > 0 && world->threads[baton].used && world->dying == 0 &&
            !world->processes[world->threads[baton].process].is_root && is_dead(pid)) {
            go_on_without(pid);
        }
        if (world->is_stuck || still_ms >= patience_s * 1000) {
            fprintf(stderr, "world: %s\n", world->is_stuck ? "nobody can ever go on" : "it stands still");
            world_show(world);
            if (baton >= 0) {
                show_call(world->threads[baton].tid);
            }
            return STUCK;
        }
    }
}

static void write_trace(const char *name)
{
    FILE *file = fopen(name, "w");
    uint64_t first = world->turn > WORLD_STEPS ? world->turn - WORLD_STEPS : 0;

    for (uint64_t turn = first; file != NULL && turn < world->turn; turn++) {
        const struct step *step = &world->steps[turn % WORLD_STEPS];
        fprintf(file, "%llu %.6f %d %d\n", (unsigned long long)turn, (double)step->now / (double)SECOND, step->thread,
                step->wait);
    }
    if (file != NULL) {
        fclose(file);
    }
}

int main(int count, char **arguments)
{
    int option, cpu = -1, patience_s = 60, status, tells = 0;
    const char *trace = NULL, *project = NULL, *results = NULL;
    unsigned uid = getuid(), gid = getgid();

    make_world();
    while ((option = getopt(count, arguments, "+s:l:y:c:d:r:u:t:w:v")) >= 0) {
        switch (option) {
        case 's':
            world->seed = world->random = strtoull(optarg, NULL, 0);
            break;
        case 'l':
            if (sscanf(optarg, "%ld,%ld,%127s", &world->late_us, &world->late_permille, world->late_names) < 2) {
                return NO_WORLD;
            }
            break;
        case 'y':
            world->yield_permille = atol(optarg);
            break;
        case 'c':
            cpu = atoi(optarg);
            break;
        case 'd':
            project = optarg;
            break;
        case 'r':
            results = optarg;
            break;
        case 'u':
            world->turn_ns = atol(optarg);
            break;
        case 't':
            trace = optarg;
            break;
        case 'w':
            patience_s = atoi(optarg);
            break;
        case 'v':
            tells = 1;
            break;
        default:
            return NO_WORLD;
        }
    }
    if (uid != 0) { /* as root, for what takes that; nobody notices then */
        enter_users(0, 0, uid, gid);
    }
    if (unshare(CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWNS) != 0) {
        fail("namespaces");
    }
    pid_t inner = fork();
    if (inner == 0) { /* process 1 of the world: when it ends, so do all others; and it ends with the launcher */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        take_processor(cpu);
        make_files(project, results);
        make_network();
        raise_descriptors();
        open_probe();
        if (uid != 0) {
            enter_users(uid, gid, 0, 0);
            /* Or what it starts may not ask it for descriptors. */
            syscall(SYS_capset, &(struct __user_cap_header_struct){.version = _LINUX_CAPABILITY_VERSION_3},
                    (struct __user_cap_data_struct[2]){{0}, {0}});
        }
        _exit(keep(start(arguments + optind), patience_s));
    }
    while (waitpid(inner, &status, 0) < 0 && errno == EINTR) {
    }
    if (tells) {
        struct rusage used;
        getrusage(RUSAGE_CHILDREN, &used);
        fprintf(stderr,
                "world: seed %llu, %.1f seconds of the processor, %.6f virtual seconds, %llu turns, %llu processes, "
                "%llu kills, order %016llx\n",
                (unsigned long long)world->seed,
                (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                    1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec),
                (double)world->now / (double)SECOND, (unsigned long long)world->turn,
                (unsigned long long)world->process_serial, (unsigned long long)world->kills,
                (unsigned long long)world->order);
    }
    if (trace != NULL) {
        write_trace(trace);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
