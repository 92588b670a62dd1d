#include "net/port.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Where descriptors that are handed over begin. */
#define FIRST_INHERITED 3
/* How long is waited for somebody whose queue is full, to see who it is. */
#define LOOK_PATIENCE_S 2
/* The name of a program in /proc has up to 15 bytes, and a line's end. */
#define PROGRAM_MAX 32

/* ---- sockets that are handed over ---- */

static size_t number_in(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    unsigned long number = text != NULL ? strtoul(text, &end, 10) : 0;

    return end != NULL && end != text && *end == '\0' ? number : 0;
}

struct port_source port_source_of_process(bool takes_over)
{
    struct port_source source = {.takes_over = takes_over};

    size_t announced = number_in("LISTEN_PID") == (size_t)getpid() ? number_in("LISTEN_FDS") : 0;
    int fd = FIRST_INHERITED;
    while (source.inherited_count < announced && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 &&
           port_source_add(&source, &(struct port_inherited){.fd = fd, .is_kept = true})) {
        fd++;
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return source;
}

bool port_source_add(struct port_source *source, const struct port_inherited *inherited)
{
    struct port_inherited *longer = realloc(source->inherited, (source->inherited_count + 1) * sizeof *longer);

    if (longer == NULL) {
        return false;
    }
    source->inherited = longer;
    source->inherited[source->inherited_count++] = *inherited;
    return true;
}

static bool listens(int fd)
{
    int accepts = 0;
    socklen_t length = sizeof accepts;

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &length) == 0 && accepts != 0;
}

static bool own_address(int fd, struct connection_target *own)
{
    memset(own, 0, sizeof *own);
    own->length = sizeof own->address;
    return getsockname(fd, (struct sockaddr *)&own->address, &own->length) == 0;
}

/* Of a Unix address only the path counts: its length may be told with or without what follows it. */
static bool is_same_address(const struct connection_target *a, const struct connection_target *b)
{
    if (a->address.ss_family != b->address.ss_family) {
        return false;
    }
    if (a->address.ss_family == AF_UNIX) {
        return strcmp(((const struct sockaddr_un *)&a->address)->sun_path,
                      ((const struct sockaddr_un *)&b->address)->sun_path) == 0;
    }
    return a->length == b->length && memcmp(&a->address, &b->address, a->length) == 0;
}

/* A Unix socket may have been renamed since it got its address. */
static bool find_address(const struct port_inherited *inherited, struct connection_target *own)
{
    bool found = own_address(inherited->fd, own);

    if (found && own->address.ss_family == AF_UNIX && *inherited->file.path != '\0') {
        memcpy(((struct sockaddr_un *)&own->address)->sun_path, inherited->file.path, sizeof inherited->file.path);
    }
    return found;
}

/* The one that listens there, now in use; NULL: there is none. */
static const struct port_inherited *take_inherited(struct port_source *source, const struct connection_target *target)
{
    for (size_t i = 0; i < source->inherited_count; i++) {
        struct port_inherited *inherited = &source->inherited[i];
        struct connection_target own;
        if (!inherited->is_used && listens(inherited->fd) && find_address(inherited, &own) &&
            is_same_address(&own, target)) {
            inherited->is_used = true;
            (void)fcntl(inherited->fd, F_SETFL, fcntl(inherited->fd, F_GETFL) | O_NONBLOCK);
            return inherited;
        }
    }
    return NULL;
}

static void write_address(const struct connection_target *own, char *text, size_t size)
{
    if (own->address.ss_family == AF_UNIX) {
        snprintf(text, size, "unix:%s", ((const struct sockaddr_un *)&own->address)->sun_path);
    } else {
        connection_peer_text(&own->address, text, size);
    }
}

void port_source_close_unused(struct port_source *source, void (*report)(const char *address))
{
    for (size_t i = 0; i < source->inherited_count; i++) {
        struct port_inherited *inherited = &source->inherited[i];
        struct connection_target own;
        char text[sizeof(struct sockaddr_un) + 8] = "?";
        if (!inherited->is_used) {
            if (find_address(inherited, &own)) {
                write_address(&own, text, sizeof text);
            }
            report(text);
            close(inherited->fd);
            inherited->fd = -1;
        }
    }
}

/* ---- sockets that are opened here ---- */

static void set_flag(int fd, int level, int option)
{
    const int on = 1;

    (void)setsockopt(fd, level, option, &on, sizeof on);
}

/* A Unix socket file survives its process. */
static bool is_socket(const struct sockaddr_un *address)
{
    struct stat status;

    return lstat(address->sun_path, &status) == 0 && S_ISSOCK(status.st_mode);
}

/* Connects to see who listens there: the connection, or -1 with errno set. */
static int look_at(const struct sockaddr_un *address)
{
    const struct timeval patience = {.tv_sec = LOOK_PATIENCE_S};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        int reason = errno;
        close(fd);
        errno = reason;
        return -1;
    }
    return fd;
}

/* It may be removed only when nobody answers on it. */
static void remove_dead_socket(const struct sockaddr_un *address)
{
    int fd = is_socket(address) ? look_at(address) : -1;

    if (fd >= 0) {
        close(fd);
    } else if (is_socket(address) && errno == ECONNREFUSED) {
        unlink(address->sun_path);
    }
}

/* The name by which the program was started that runs as that process: it stays when another file is installed under
 * that name, as an upgrade does. */
static bool read_program(const char *process, char name[PROGRAM_MAX])
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%s/comm", process);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, name, PROGRAM_MAX - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    name[length > 0 ? length : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    return *name != '\0';
}

/* Whether who listens there is a Headgate of the same user. Says what is found. */
static bool is_headgate(const struct port_source *source, int fd, const char *path)
{
    struct ucred peer = {.pid = 0};
    socklen_t length = sizeof peer;
    char process[24], program[PROGRAM_MAX], own[PROGRAM_MAX];

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        log_error("port", "unix:%s is left alone: it cannot be told who listens on it", path);
        return false;
    }
    if (peer.uid != geteuid() && !(source->has_owner && peer.uid == source->owner)) {
        log_error("port", "unix:%s is left alone: user %lu listens on it", path, (unsigned long)peer.uid);
        return false;
    }
    snprintf(process, sizeof process, "%ld", (long)peer.pid);
    if (peer.pid <= 0 || !read_program(process, program) || !read_program("self", own)) {
        log_error("port",
                  "unix:%s is left alone: it cannot be told which program listens on it, as its process is in another "
                  "container, hidden or gone; end it first",
                  path);
        return false;
    }
    if (strcmp(program, own) != 0) {
        log_error("port", "unix:%s is left alone: process %s (%s) listens on it, which is not Headgate", path, process,
                  program);
        return false;
    }
    log_info("port", "unix:%s: process %s listens on it, and is replaced there", path, process);
    return true;
}

/* Whether the Unix socket may be replaced. False with errno set. */
static bool may_replace(const struct port_source *source, const struct sockaddr_un *address)
{
    int fd = look_at(address);

    if (fd >= 0) {
        bool may = is_headgate(source, fd, address->sun_path);
        close(fd);
        errno = EADDRINUSE;
        return may;
    }
    if (errno == ECONNREFUSED || errno == ENOENT) {
        return true;
    }
    log_error("port", "unix:%s is left alone: it cannot be told who listens on it: %s", address->sun_path,
              strerror(errno));
    errno = EADDRINUSE;
    return false;
}

static bool remember_file(struct port *port, const char *path)
{
    struct stat status;

    if (lstat(path, &status) != 0) {
        return false;
    }
    snprintf(port->file.path, sizeof port->file.path, "%s", path);
    port->file.device = status.st_dev;
    port->file.inode = status.st_ino;
    return true;
}

static bool is_that_file(const struct port_file *file, const struct stat *status)
{
    return status->st_dev == file->device && status->st_ino == file->inode;
}

/* The file has its mode from its first moment on: behind the name there may be another one in the next. The umask is
 * that of all threads, of which no other one makes files. */
static bool listen_at(struct port *port, const struct sockaddr_un *address, mode_t mode)
{
    mode_t before = umask(~mode & (S_IRWXU | S_IRWXG | S_IRWXO));
    bool is_bound = bind(port->fd, (const struct sockaddr *)address, sizeof *address) == 0;

    (void)umask(before);
    if (!is_bound) {
        return false;
    }
    if (!remember_file(port, address->sun_path)) {
        int reason = errno;
        unlink(address->sun_path);
        errno = reason;
        return false;
    }
    return listen(port->fd, port->backlog) == 0;
}

/* Gives the socket file to its owner-to-be: the one that was made here, and nothing that was put in its place. */
static bool give_to_owner(const struct port *port, const struct port_source *source)
{
    struct stat status;
    int fd = open(port->file.path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    bool is_it = fd >= 0 && fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) && is_that_file(&port->file, &status) &&
                 status.st_uid == geteuid();
    bool given = is_it && fchownat(fd, "", source->owner, source->owner_group, AT_EMPTY_PATH) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return given;
}

/* In a directory that the owner-to-be may write to, it makes the file itself: who owns a directory can exchange what is
 * in it, and root must not give away what it finds there. */
static bool listen_as_owner(struct port *port, const struct port_source *source, const struct sockaddr_un *address,
                            mode_t mode)
{
    if (!source->has_owner) {
        return listen_at(port, address, mode);
    }
    uid_t self = geteuid();
    gid_t own_group = getegid();
    bool changed = setegid(source->owner_group) == 0 && seteuid(source->owner) == 0;
    bool listens = changed && listen_at(port, address, mode);
    int reason = errno;
    if (seteuid(self) != 0 || setegid(own_group) != 0) {
        return false;
    }
    if (!listens && changed && reason == EACCES) {
        return listen_at(port, address, mode) && give_to_owner(port, source);
    }
    errno = reason;
    return listens;
}

/* Where nobody looks for it. */
static bool listen_beside(struct port *port, const struct port_source *source, const struct sockaddr_un *address,
                          mode_t mode)
{
    struct sockaddr_un beside = {.sun_family = AF_UNIX};
    int length = snprintf(beside.sun_path, sizeof beside.sun_path, "%.*s.%ld", (int)sizeof beside.sun_path - 1,
                          address->sun_path, (long)getpid());

    if (length < 0 || (size_t)length >= sizeof beside.sun_path) {
        errno = ENAMETOOLONG;
        return false;
    }
    port->place = strdup(address->sun_path);
    if (port->place == NULL) {
        return false;
    }
    /* Numbers of processes are given again, and in containers they are always the same. */
    remove_dead_socket(&beside);
    return listen_as_owner(port, source, &beside, mode);
}

static bool open_unix(struct port *port, const struct port_source *source, const struct connection_target *target,
                      mode_t mode)
{
    const struct sockaddr_un *address = (const struct sockaddr_un *)&target->address;

    if (source->takes_over && is_socket(address)) {
        return may_replace(source, address) && listen_beside(port, source, address, mode);
    }
    remove_dead_socket(address);
    return listen_as_owner(port, source, address, mode);
}

/* The file takes the place of the one that is there in one step: who connects reaches the one or the other. */
static bool take_place(struct port *port)
{
    if (rename(port->file.path, port->place) != 0) {
        return false;
    }
    snprintf(port->file.path, sizeof port->file.path, "%s", port->place);
    free(port->place);
    port->place = NULL;
    return true;
}

/*
 * All who connect from now on are this socket's, the second of those at the address. So the process that was there
 * first can close its own without losing who has just connected. Where the kernel does not take it, it deals them out
 * to both.
 */
static void attract_all(int fd)
{
    struct sock_filter always_second = {.code = BPF_RET | BPF_K, .k = 1};
    const struct sock_fprog program = {.len = 1, .filter = &always_second};

    (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}

static bool listen_tcp(const struct port *port)
{
    if (listen(port->fd, port->backlog) != 0) {
        return false;
    }
    set_flag(port->fd, SOL_SOCKET, SO_REUSEPORT);
    return true;
}

/* Without SO_REUSEPORT, bind() succeeds only if nobody else is there, and with it, if who is there has it set, too, and
 * is of the same user. So each sets it, but not before it listens: two that start at once do not share it. */
static bool open_tcp(const struct port *port, const struct port_source *source, const struct connection_target *target)
{
    set_flag(port->fd, SOL_SOCKET, SO_REUSEADDR);
    if (target->address.ss_family == AF_INET6) {
        set_flag(port->fd, IPPROTO_IPV6, IPV6_V6ONLY);
    }
    if (source->takes_over) {
        set_flag(port->fd, SOL_SOCKET, SO_REUSEPORT);
    }
    return bind(port->fd, (const struct sockaddr *)&target->address, target->length) == 0 &&
           (source->takes_over || listen_tcp(port));
}

/* False with errno set, and nothing is open. */
static bool open_here(struct port *port, const struct port_source *source, const struct connection_target *target,
                      mode_t unix_mode)
{
    port->fd = socket(target->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (port->fd >= 0 && source->has_owner) {
        /* Whoever takes over has to be of the same user. */
        (void)fchown(port->fd, source->owner, source->owner_group);
    }
    bool is_unix = target->address.ss_family == AF_UNIX;
    bool opened =
        port->fd >= 0 && (is_unix ? open_unix(port, source, target, unix_mode) : open_tcp(port, source, target));
    if (!opened) {
        int reason = errno;
        port_close(port);
        errno = reason;
    }
    return opened;
}

static void list_port(struct port *port, const struct port_source *source)
{
    if (source->ports != NULL) {
        LIST_INSERT_HEAD(source->ports, port, of_source);
        port->is_listed = true;
    }
}

bool port_open(struct port *port, struct port_source *source, const struct connection_target *target, int backlog,
               mode_t unix_mode)
{
    const struct port_inherited *inherited = take_inherited(source, target);

    *port = (struct port){.fd = -1, .backlog = backlog};
    if (inherited != NULL) {
        port->fd = inherited->fd;
        port->is_inherited = true;
        port->may_be_owned = !inherited->is_kept;
        port->lent = inherited->file;
    } else if (!open_here(port, source, target, unix_mode)) {
        return false;
    }
    list_port(port, source);
    return true;
}

/* Whether the list has it beside that name. */
static bool is_listed(const struct conf_address_list *list, const struct connection_target *target)
{
    struct connection_targets one;
    bool is = false;

    for (size_t i = 0; !is && i < list->count; i++) {
        is = connection_resolve_numeric(&list->items[i], &one) && is_same_address(&one.items[0], target);
    }
    return is;
}

static bool open_each(struct port_source *source, const struct conf_address_list *list,
                      const struct conf_address *address, const char *module, port_opener *open, void *context)
{
    struct connection_targets targets;
    bool is_name = !connection_resolve_numeric(address, &targets), is_sound = connection_resolve(address, &targets);
    const char *why = targets.why;
    size_t served = 0;

    for (size_t i = 0; is_sound && i < targets.count; i++) {
        if ((is_name && is_listed(list, &targets.items[i])) || open(context, source, address, &targets.items[i])) {
            served++;
        } else {
            why = strerror(errno);
            is_sound = errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT;
        }
    }
    if (!is_sound || served == 0) {
        log_error(module, "cannot listen on %s: %s", address->text, why);
    }
    return is_sound && served > 0;
}

bool port_open_all(struct port_source *source, const struct conf_address_list *list, const char *module,
                   port_opener *open, void *context)
{
    bool opened = true;

    for (size_t i = list->count; i-- > 0;) {
        opened = open_each(source, list, &list->items[i], module, open, context) && opened;
    }
    return opened;
}

struct port_inherited port_tell(const struct port *port)
{
    return (struct port_inherited){
        .fd = port->fd,
        .is_kept = port->is_inherited && !port->may_be_owned,
        .file = port->may_be_owned ? port->lent : port->file,
    };
}

void port_own(struct port *port)
{
    if (port->may_be_owned) {
        port->file = port->lent;
        port->may_be_owned = false;
        port->is_inherited = false;
    }
}

void port_leave(struct port *port)
{
    port->is_left = true;
    port->was_inherited = port->is_inherited;
    port->lent = port->file;
    port->may_be_owned = false;
    port->is_inherited = true;
    *port->file.path = '\0';
}

void port_take_back(struct port *port)
{
    if (port->is_left) {
        port->is_left = false;
        port->is_inherited = port->was_inherited;
        port->file = port->lent;
    }
}

bool port_serve(struct port *port)
{
    if (port->place != NULL) {
        return take_place(port);
    }
    if (listens(port->fd)) {
        return true;
    }
    /* Beside who is to go. */
    if (!listen_tcp(port)) {
        return false;
    }
    attract_all(port->fd);
    return true;
}

void port_hide(struct port *port)
{
    struct stat status;

    if (*port->file.path != '\0' && lstat(port->file.path, &status) == 0 && is_that_file(&port->file, &status)) {
        unlink(port->file.path);
    }
    *port->file.path = '\0';
    free(port->place);
    port->place = NULL;
}

void port_close(struct port *port)
{
    port_hide(port);
    if (port->is_listed) {
        LIST_REMOVE(port, of_source);
        port->is_listed = false;
    }
    if (port->fd >= 0) {
        close(port->fd);
    }
    port->fd = -1;
}
