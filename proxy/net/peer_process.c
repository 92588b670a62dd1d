/* Sources: proc(5), Documentation/filesystems/proc.rst: /proc/PID/fd and /proc/PID/stat. */
#include "net/peer_process.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Places at which sockets were found: a program that connects anew each time has its socket at the same one mostly. */
#define PLACES_MAX 64
/* Searches take one part of so many of the time, and no longer than this at once. What they take is the thread's own
 * time: on a busy machine they get as far as on an idle one. That is asked for after so many looks. */
#define TIME_PART 20
#define CREDIT_MAX_US INT64_C(10000)
#define LOOKS_PER_TIME 16
/* A search that nobody has gone on with for so long makes room for another. */
#define SEARCH_PATIENCE_US INT64_C(1000000)
/* So long the sockets of a process are taken for those that it has now. */
#define GATHERED_LASTS_US INT64_C(1000000)
#define PATH_MAX_OF_PROC 64
/* "." and "..". */
#define ENTRIES_BEFORE_DESCRIPTORS 2
#define STAT_BYTES 1024
/* The name of this program, as the kernel tells it of other processes. */
#define OWN_NAME "headgate"

struct place {
    pid_t pid;
    int fd;
};

/* So many descriptors of each process come ahead of the rest: one with thousands would hold up the search for all. */
#define FIRST_DESCRIPTORS 256

/* What a search goes through: processes of which other sockets are known, the first descriptors of those of the user,
 * the rest of these, all others. */
enum phase { PHASE_KNOWN, PHASE_SAME_USER_FIRST, PHASE_SAME_USER_REST, PHASE_OTHERS, PHASE_END };

/* A search through all processes, as far as it has come. */
struct search {
    uint64_t inode; /* 0: there is none */
    enum phase phase;
    pid_t *pids; /* all processes, in the order of their numbers */
    size_t room;
    size_t left; /* so many of them, the first ones, are not done yet, and … */
    pid_t next;  /* … of this one those descriptors are … */
    int fd;      /* … up to here; -1: none */
    bool denied;
    int64_t asked_us;
    int64_t until_us; /* of the thread's own time: then the slice ends */
    unsigned int looks;
};

/* The sockets of one process, as far as they were looked at. */
struct gathering {
    struct peer_process process; /* pid 0: there is none */
    int64_t begun_us, ended_us;  /* ended 0: it is under way … */
    int fd;                      /* … and up to here all are done */
    bool outdated;               /* it was asked for a connection that came later */
    uint64_t *inodes;            /* sorted when it has ended */
    size_t count, room;
};

struct peer_finder {
    struct place places[PLACES_MAX]; /* the last one that was of use first */
    size_t place_count;
    struct search search;
    int64_t credit_us;   /* time that searches may take … */
    int64_t credited_us; /* … as it was then */
    struct gathering gathering;
};

static const char elsewhere[] = "no process that can be seen here has its socket: it may be in another container";
static const char denied[] =
    "its process is another user's, or has more rights than Headgate, which may not look at it";
static const char other_namespace[] = "its process is in another container";
static const char succeeded[] = "the process that connected has ended, and another one has its number";
static const char ended[] = "the process that connected has ended, or is hidden from Headgate (hidepid)";

struct peer_finder *peer_finder_new(void)
{
    struct peer_finder *finder = calloc(1, sizeof *finder);

    if (finder != NULL) {
        finder->credit_us = CREDIT_MAX_US;
        finder->credited_us = clock_now_us();
    }
    return finder;
}

void peer_finder_free(struct peer_finder *finder)
{
    if (finder != NULL) {
        free(finder->search.pids);
        free(finder->gathering.inodes);
        free(finder);
    }
}

/* ---- how long it may take ---- */

/* How much time there is for a search; it has to be spent. */
static int64_t credit(struct peer_finder *finder, int64_t now)
{
    int64_t gained = (now - finder->credited_us) / TIME_PART;

    if (gained > 0) {
        int64_t sum = finder->credit_us + gained;
        finder->credit_us = sum < CREDIT_MAX_US ? sum : CREDIT_MAX_US;
        finder->credited_us = now;
    }
    return finder->credit_us;
}

static int64_t own_time_us(void)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void spend(struct peer_finder *finder, int64_t start_us)
{
    finder->credit_us -= own_time_us() - start_us;
}

/* ---- one process ---- */

/* What /proc/PID/stat says. */
struct status {
    char state;
    long threads;
    uint64_t started;
    bool is_headgate;
};

/* The name of the program stands in parentheses, and may hold any bytes. */
static bool parse_status(const char *text, struct status *status)
{
    const char *name = strchr(text, '(');
    const char *behind_name = strrchr(text, ')');

    status->is_headgate =
        name != NULL && behind_name - name == sizeof OWN_NAME && memcmp(name + 1, OWN_NAME, sizeof OWN_NAME - 1) == 0;

    return behind_name != NULL &&
           sscanf(behind_name + 1,
                  " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %" SCNu64,
                  &status->state, &status->threads, &status->started) == 3;
}

static bool read_status(pid_t pid, struct status *status)
{
    char path[PATH_MAX_OF_PROC], text[STAT_BYTES];

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) {
        return false;
    }
    text[length] = '\0';
    return parse_status(text, status);
}

static bool is_over(const struct status *status)
{
    /* The first thread may end before the others do. */
    return status->state == 'X' || (status->state == 'Z' && status->threads <= 1);
}

bool peer_process_lives(const struct peer_process *process)
{
    struct status status;

    errno = 0;
    if (read_status(process->pid, &status)) {
        return (process->started == 0 || status.started == process->started) && !is_over(&status);
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
        return true; /* it is Headgate that cannot look */
    }
    /* Where processes of others are hidden, the pid alone can be asked for. */
    return process->started == 0 && (kill(process->pid, 0) == 0 || errno == EPERM);
}

static struct peer_process process_of(pid_t pid)
{
    struct status status;

    if (!read_status(pid, &status)) {
        return (struct peer_process){.pid = pid};
    }
    return (struct peer_process){.pid = pid, .started = status.started, .is_headgate = status.is_headgate};
}

/* When that was by the clock that tells when processes began, in its ticks. It goes on while the machine sleeps, which
 * the other one does not: if it slept since, this is too late. */
static uint64_t ticks_at(int64_t monotonic_us)
{
    struct timespec now = {0};
    int64_t us_per_tick = INT64_C(1000000) / sysconf(_SC_CLK_TCK);

    /* First: if the thread has to wait between the two, it is too late a time, which nobody is wrongly doubted for. */
    int64_t ago = clock_now_us() - monotonic_us;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)(((int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 - ago) / us_per_tick);
}

/* Whether a process that began then can have made the connection. */
static bool may_have_connected(uint64_t started, const struct peer *peer)
{
    return peer->connected_us == 0 || started <= ticks_at(peer->connected_us);
}

/* The number of the socket that a link of /proc/PID/fd leads to; 0: it is no socket. */
static uint64_t read_socket(int directory, const char *name)
{
    char target[64];
    uint64_t inode;
    ssize_t length = readlinkat(directory, name, target, sizeof target - 1);

    if (length <= 0) {
        return 0;
    }
    target[length] = '\0';
    return sscanf(target, "socket:[%" SCNu64 "]", &inode) == 1 ? inode : 0;
}

static DIR *open_descriptors(pid_t pid)
{
    char path[PATH_MAX_OF_PROC];

    snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
    return opendir(path);
}

/* To the entry of the next number (fs/proc/fd.c): reading on to it would take more time with every slice. */
static void go_behind(DIR *descriptors, int fd)
{
    if (fd >= 0) {
        seekdir(descriptors, fd + 1 + ENTRIES_BEFORE_DESCRIPTORS);
    }
}

/* A name of /proc that is a number, or -1. */
static long read_number(const char *name)
{
    char *end;
    long number = *name >= '0' && *name <= '9' ? strtol(name, &end, 10) : -1;

    return number >= 0 && *end == '\0' ? number : -1;
}

/* ---- where sockets were found before ---- */

static bool has_at(const struct place *place, uint64_t inode)
{
    char path[PATH_MAX_OF_PROC];

    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)place->pid, place->fd);
    return read_socket(AT_FDCWD, path) == inode;
}

/* It comes first from now on; index: where it was. */
static void put_first(struct peer_finder *finder, struct place place, size_t index)
{
    memmove(&finder->places[1], &finder->places[0], index * sizeof place);
    finder->places[0] = place;
}

static void remember(struct peer_finder *finder, struct place place)
{
    size_t last = finder->place_count < PLACES_MAX ? finder->place_count++ : PLACES_MAX - 1;

    put_first(finder, place, last);
}

static bool look_at_places(struct peer_finder *finder, uint64_t inode, struct peer_process *process)
{
    for (size_t i = 0; i < finder->place_count; i++) {
        struct place place = finder->places[i];
        if (has_at(&place, inode)) {
            put_first(finder, place, i);
            *process = process_of(place.pid);
            return true;
        }
    }
    return false;
}

/* ---- all processes ---- */

enum look { LOOK_FOUND, LOOK_DONE, LOOK_OUT_OF_TIME };

static bool is_out_of_time(struct search *search)
{
    return ++search->looks % LOOKS_PER_TIME == 0 && own_time_us() >= search->until_us;
}

/* The kernel lists descriptors in the order of their numbers. */
static enum look look_at_descriptors(DIR *descriptors, struct search *search, int *fd)
{
    const struct dirent *entry;

    while ((entry = readdir(descriptors)) != NULL) {
        long number = read_number(entry->d_name);
        if (number <= search->fd) {
            continue;
        }
        if (search->phase == PHASE_SAME_USER_FIRST && number >= FIRST_DESCRIPTORS) {
            return LOOK_DONE;
        }
        if (read_socket(dirfd(descriptors), entry->d_name) == search->inode) {
            *fd = (int)number;
            return LOOK_FOUND;
        }
        search->fd = (int)number;
        if (is_out_of_time(search)) {
            return LOOK_OUT_OF_TIME;
        }
    }
    return LOOK_DONE;
}

static enum look look_at_process(struct search *search, pid_t pid, int *fd)
{
    DIR *descriptors = open_descriptors(pid);

    /* The one that was begun may have ended since: of this one nothing was looked at. */
    if (search->next != pid) {
        search->next = pid;
        search->fd = search->phase == PHASE_SAME_USER_REST ? FIRST_DESCRIPTORS - 1 : -1;
    }
    if (descriptors == NULL) {
        search->denied = search->denied || errno == EACCES || errno == EPERM;
        return LOOK_DONE;
    }
    go_behind(descriptors, search->fd);
    enum look look = look_at_descriptors(descriptors, search, fd);
    closedir(descriptors);
    return look;
}

static bool make_room(struct search *search)
{
    size_t room = search->room > 0 ? 2 * search->room : 256;
    pid_t *pids = realloc(search->pids, room * sizeof *pids);

    if (pids != NULL) {
        search->pids = pids;
        search->room = room;
    }
    return pids != NULL;
}

/* The kernel lists processes in the order of their numbers. Without memory some are missing. */
static void list_processes(struct search *search)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;

    search->left = 0;
    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        long pid = read_number(entry->d_name);
        if (pid > 0 && (search->left < search->room || make_room(search))) {
            search->pids[search->left++] = (pid_t)pid;
        }
    }
    if (proc != NULL) {
        closedir(proc);
    }
}

static bool is_of_phase(const struct search *search, pid_t pid, uid_t uid)
{
    char path[PATH_MAX_OF_PROC];
    struct stat status;

    snprintf(path, sizeof path, "/proc/%ld", (long)pid);
    return stat(path, &status) == 0 && (status.st_uid == uid) == (search->phase != PHASE_OTHERS);
}

/* The last one first: who has connected just now has begun after the system's own processes, and before them a process
 * that closes the connection with its reply would be found too late. */
static enum look look_at_all(struct search *search, uid_t uid, struct place *place)
{
    enum look look = LOOK_DONE;

    while (look == LOOK_DONE && search->left > 0) {
        place->pid = search->pids[search->left - 1];
        if (is_of_phase(search, place->pid, uid)) {
            look = look_at_process(search, place->pid, &place->fd);
        }
        if (look == LOOK_DONE) {
            search->left--;
            look = is_out_of_time(search) ? LOOK_OUT_OF_TIME : LOOK_DONE;
        }
    }
    return look;
}

static enum look look_at_known(const struct peer_finder *finder, struct search *search, struct place *place)
{
    enum look look = LOOK_DONE;

    /* Each process once, with the first of its places. */
    for (size_t i = 0; look == LOOK_DONE && i < finder->place_count; i++) {
        bool is_first = true;
        for (size_t j = 0; is_first && j < i; j++) {
            is_first = finder->places[j].pid != finder->places[i].pid;
        }
        place->pid = finder->places[i].pid;
        look = is_first ? look_at_process(search, place->pid, &place->fd) : LOOK_DONE;
    }
    return look;
}

static void begin_phase(struct search *search, enum phase phase)
{
    search->phase = phase;
    search->next = 0;
    if (phase != PHASE_END) {
        list_processes(search);
    }
}

static enum look look_on(struct peer_finder *finder, uid_t uid, struct place *place)
{
    struct search *search = &finder->search;
    bool is_known = search->phase == PHASE_KNOWN;
    enum look look = is_known ? look_at_known(finder, search, place) : look_at_all(search, uid, place);

    if (look == LOOK_DONE || (is_known && look == LOOK_OUT_OF_TIME)) {
        begin_phase(search, search->phase + 1);
    }
    return look;
}

/* Whether it is this socket's turn to be searched for. */
static bool take_turn(struct peer_finder *finder, uint64_t inode, int64_t now)
{
    struct search *search = &finder->search;
    /* To open the directory again is worth a slice that gets somewhere. */
    int64_t least_us = search->inode == inode ? CREDIT_MAX_US / 2 : 0;

    if (credit(finder, now) <= least_us ||
        (search->inode != 0 && search->inode != inode && now - search->asked_us < SEARCH_PATIENCE_US)) {
        return false;
    }
    if (search->inode != inode) {
        *search = (struct search){.inode = inode, .fd = -1, .pids = search->pids, .room = search->room};
    }
    search->asked_us = now;
    return true;
}

static enum peer_search search_all(struct peer_finder *finder, const struct peer *peer, struct peer_process *process,
                                   const char **why)
{
    struct search *search = &finder->search;
    int64_t start = own_time_us();
    struct place place = {0, 0};
    enum look look = LOOK_DONE;

    if (!take_turn(finder, peer->inode, clock_now_us())) {
        return PEER_LATER;
    }
    search->until_us = start + finder->credit_us;
    while (look == LOOK_DONE && search->phase != PHASE_END) {
        look = look_on(finder, peer->uid, &place);
    }
    spend(finder, start);
    if (look == LOOK_OUT_OF_TIME) {
        return PEER_LATER;
    }
    search->inode = 0;
    if (look == LOOK_FOUND) {
        remember(finder, place);
        *process = process_of(place.pid);
        return PEER_FOUND;
    }
    *why = search->denied ? denied : elsewhere;
    return PEER_UNTOLD;
}

/* Of a Unix socket: who called connect(). It may have given the connection to a child and ended, and of a process whose
 * start is not known another one with its number could not be told. */
static enum peer_search find_connector(const struct peer *peer, struct peer_process *process, const char **why)
{
    struct status status;

    if (peer->pid <= 0) {
        *why = other_namespace;
        return PEER_UNTOLD;
    }
    if (!read_status(peer->pid, &status) || is_over(&status)) {
        *why = ended;
        return PEER_UNTOLD;
    }
    if (!may_have_connected(status.started, peer)) {
        *why = succeeded;
        return PEER_UNTOLD;
    }
    *process = (struct peer_process){.pid = peer->pid, .started = status.started, .is_headgate = status.is_headgate};
    return PEER_FOUND;
}

enum peer_search peer_finder_find(struct peer_finder *finder, const struct peer *peer, struct peer_process *process,
                                  const char **why)
{
    if (peer->inode == 0) {
        return find_connector(peer, process, why);
    }
    if (look_at_places(finder, peer->inode, process)) {
        return PEER_FOUND;
    }
    return search_all(finder, peer, process, why);
}

/* ---- the sockets of one process ---- */

static bool add_inode(struct gathering *gathering, uint64_t inode)
{
    if (gathering->count == gathering->room) {
        size_t room = gathering->room > 0 ? 2 * gathering->room : 64;
        uint64_t *inodes = realloc(gathering->inodes, room * sizeof *inodes);
        if (inodes == NULL) {
            return false;
        }
        gathering->inodes = inodes;
        gathering->room = room;
    }
    gathering->inodes[gathering->count++] = inode;
    return true;
}

static int compare_inodes(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

static bool is_same_process(const struct peer_process *a, const struct peer_process *b)
{
    return a->pid == b->pid && a->started == b->started;
}

static void begin_gathering(struct gathering *gathering, const struct peer_process *process, int64_t now)
{
    gathering->process = *process;
    gathering->begun_us = now;
    gathering->ended_us = 0;
    gathering->fd = -1;
    gathering->outdated = false;
    gathering->count = 0;
}

/* From where it has come to. False: the time is over. */
static bool gather_descriptors(struct gathering *gathering, DIR *descriptors, int64_t until_us)
{
    const struct dirent *entry;
    unsigned int looks = 0;

    while ((entry = readdir(descriptors)) != NULL) {
        long number = read_number(entry->d_name);
        if (number <= gathering->fd) {
            continue;
        }
        uint64_t inode = read_socket(dirfd(descriptors), entry->d_name);
        if (inode != 0 && !add_inode(gathering, inode)) {
            return true;
        }
        gathering->fd = (int)number;
        if (++looks % LOOKS_PER_TIME == 0 && own_time_us() >= until_us) {
            return false;
        }
    }
    return true;
}

static bool gather_on(struct gathering *gathering, int64_t until_us)
{
    DIR *descriptors = open_descriptors(gathering->process.pid);

    if (descriptors == NULL) {
        return true;
    }
    go_behind(descriptors, gathering->fd);
    bool ended = gather_descriptors(gathering, descriptors, until_us);
    closedir(descriptors);
    return ended;
}

static void end_gathering(struct gathering *gathering, int64_t now)
{
    gathering->ended_us = now;
    if (!peer_process_lives(&gathering->process)) {
        gathering->count = 0;
    }
    if (gathering->count > 1) {
        qsort(gathering->inodes, gathering->count, sizeof gathering->inodes[0], compare_inodes);
    }
}

bool peer_finder_gather(struct peer_finder *finder, const struct peer_process *process)
{
    struct gathering *gathering = &finder->gathering;
    int64_t now = clock_now_us();
    bool is_of_process = is_same_process(&gathering->process, process);
    bool is_under_way = is_of_process && gathering->ended_us == 0;

    if (is_of_process && !is_under_way && !gathering->outdated && now - gathering->ended_us < GATHERED_LASTS_US) {
        return true;
    }
    /* To open the directory again is worth a slice that gets somewhere. */
    if (credit(finder, now) <= (is_under_way ? CREDIT_MAX_US / 2 : 0)) {
        return false;
    }
    if (!is_under_way) {
        begin_gathering(gathering, process, now);
    }
    int64_t start = own_time_us();
    if (gather_on(gathering, start + finder->credit_us)) {
        end_gathering(gathering, now);
    }
    spend(finder, start);
    return gathering->ended_us != 0;
}

bool peer_finder_reaches(struct peer_finder *finder, int64_t connected_us)
{
    struct gathering *gathering = &finder->gathering;
    bool reaches = connected_us < gathering->begun_us;

    gathering->outdated = gathering->outdated || !reaches;
    return reaches;
}

bool peer_finder_has(const struct peer_finder *finder, const struct peer *peer)
{
    const struct gathering *gathering = &finder->gathering;

    if (peer->inode == 0) {
        return peer->pid > 0 && peer->pid == gathering->process.pid &&
               may_have_connected(gathering->process.started, peer);
    }
    return gathering->ended_us != 0 && gathering->count > 0 &&
           bsearch(&peer->inode, gathering->inodes, gathering->count, sizeof gathering->inodes[0], compare_inodes) !=
               NULL;
}
