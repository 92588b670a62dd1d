#include "event/file_watch.h"

#include "base/log.h"

#include <errno.h>
#include <event2/event_struct.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

/* Between two looks, for files to settle. */
#define SETTLE_S 1
/* When so many looks have found something else each time, it is said that they do not settle. */
#define RESTLESS_LOOKS 10
/* How often files are looked at without being told to: with inotify, and without. */
#define LOOK_S 60
#define LOOK_ALONE_S 5
/* As many links as the kernel follows. */
#define LINKS_MAX 40

/* What is written is told of when it is closed, so that nothing half written is read that is written in one go. */
#define EVENTS                                                                                                         \
    (IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)

struct file_watch {
    struct reactor *reactor;
    file_watch_callback *changed;
    void *context;
    bool is_alone; /* inotify is not to be had, and this was said */
    struct conf_files files;
    int fd; /* of inotify; -1: none */
    struct event told;
    struct event look;
    struct event settle;
    uint64_t state; /* of the files at the last look */
    int looks;
    bool told_emptied;
};

/* ---- which directories ---- */

/* Where one is on the way to a file: what is behind has no links any more. */
struct way {
    char behind[PATH_MAX];
    char ahead[PATH_MAX];
    char next[PATH_MAX]; /* behind, and the next name */
};

static bool put_path(char to[PATH_MAX], const char *first, const char *second)
{
    char whole[2 * PATH_MAX];
    size_t length = strlen(first);
    bool needs_slash = *second != '\0' && length > 0 && first[length - 1] != '/';

    snprintf(whole, sizeof whole, "%s%s%s", first, needs_slash ? "/" : "", second);
    if (strlen(whole) >= PATH_MAX) {
        return false;
    }
    strcpy(to, whole);
    return true;
}

/* Takes the next name. False: there is none, or no room for it. */
static bool next_name(struct way *way)
{
    char *name = way->ahead + strspn(way->ahead, "/");
    size_t length = strcspn(name, "/");
    char rest[PATH_MAX];

    if (length == 0) {
        return false;
    }
    strcpy(rest, name + length + strspn(name + length, "/"));
    name[length] = '\0';
    bool fits = put_path(way->next, way->behind, name);
    strcpy(way->ahead, rest);
    return fits;
}

/* The link's target is the way ahead. */
static bool follow(struct way *way, const char *target)
{
    if (*target == '/') {
        strcpy(way->behind, "/");
    }
    return put_path(way->ahead, target, way->ahead);
}

/* False with errno set: inotify is not to be had. A directory that cannot be watched, or is not there, is none. */
static bool watch_directory(int fd, const char *path)
{
    return inotify_add_watch(fd, path, EVENTS | IN_ONLYDIR) >= 0 || (errno != ENOSPC && errno != ENOMEM);
}

/* Every directory on the way in which something may be exchanged: the file's own, those of links, and the last one that
 * is there where something is missing. */
static bool watch_way(int fd, const char *path)
{
    struct way way;
    char target[PATH_MAX];
    int links = 0;

    if (strlen(path) >= PATH_MAX) {
        return true;
    }
    strcpy(way.behind, *path == '/' ? "/" : ".");
    strcpy(way.ahead, path);
    while (next_name(&way)) {
        struct stat status;
        ssize_t length = readlink(way.next, target, sizeof target - 1);
        bool is_link = length >= 0, is_last = *way.ahead == '\0' || lstat(way.next, &status) != 0;
        if ((is_link || is_last) && !watch_directory(fd, way.behind)) {
            return false;
        }
        if (is_link) {
            target[length] = '\0';
            if (++links > LINKS_MAX || !follow(&way, target)) {
                return true;
            }
        } else if (is_last) {
            /* It may be a directory itself, as one with certificates is. */
            return watch_directory(fd, way.next);
        } else {
            strcpy(way.behind, way.next);
        }
    }
    return true;
}

static bool watch_ways(const struct file_watch *watch)
{
    bool watched = true;

    for (size_t i = 0; i < watch->files.count; i++) {
        watched = watched && watch_way(watch->fd, watch->files.items[i].path);
    }
    return watched;
}

/* ---- looking ---- */

static void arm(struct event *event, time_t seconds)
{
    const struct timeval interval = {.tv_sec = seconds};

    if (event_add(event, &interval) != 0) {
        log_error("watch", "out of memory: changes of files are not seen; SIGHUP reads them");
    }
}

static void end_inotify(struct file_watch *watch)
{
    if (watch->fd >= 0) {
        event_del(&watch->told);
        close(watch->fd);
        watch->fd = -1;
    }
}

/* Files that change now are looked at until they have settled. What is told meanwhile adds nothing. */
static void begin_settling(struct file_watch *watch)
{
    end_inotify(watch);
    event_del(&watch->look);
    watch->state = conf_files_state(&watch->files);
    watch->looks = 0;
    watch->told_emptied = false;
    arm(&watch->settle, SETTLE_S);
}

static void on_told(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    begin_settling(context);
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
    struct file_watch *watch = context;

    (void)fd;
    (void)what;
    /* What stood in the place of the directories may be another now. */
    begin_settling(watch);
}

static void tell_alone(struct file_watch *watch, const char *why)
{
    if (!watch->is_alone) {
        log_warning("watch", "inotify is not to be had (%s): files are looked at every %d seconds", why, LOOK_ALONE_S);
    }
    watch->is_alone = true;
}

/* From the beginning, as the directories may be others now. */
static void begin_inotify(struct file_watch *watch)
{
    watch->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch->fd < 0) {
        tell_alone(watch, strerror(errno));
        return;
    }
    event_assign(&watch->told, watch->reactor->base, watch->fd, EV_READ, on_told, watch);
    if (!watch_ways(watch) || event_add(&watch->told, NULL) != 0) {
        tell_alone(watch, strerror(errno));
        end_inotify(watch);
        return;
    }
    watch->is_alone = false;
}

static void watch_on(struct file_watch *watch)
{
    begin_inotify(watch);
    if (conf_files_changed(&watch->files)) {
        /* Since it was read. */
        begin_settling(watch);
    } else {
        arm(&watch->look, watch->fd >= 0 ? LOOK_S : LOOK_ALONE_S);
    }
}

/* A file that is to be written anew was emptied, or there was no room for what was written. That none of its rules
 * holds is not what is meant; who is sure sends SIGHUP. */
static bool waits_for_content(struct file_watch *watch)
{
    const char *path = conf_files_emptied(&watch->files);

    if (path != NULL && !watch->told_emptied) {
        log_warning("watch", "%s was emptied: it is read when there is something in it, or by SIGHUP", path);
        watch->told_emptied = true;
    }
    return path != NULL;
}

static void on_settled(evutil_socket_t fd, short what, void *context)
{
    struct file_watch *watch = context;
    uint64_t before = watch->state;

    (void)fd;
    (void)what;
    watch->state = conf_files_state(&watch->files);
    if (watch->state != before) {
        if (++watch->looks == RESTLESS_LOOKS) {
            log_warning("watch", "a file of the configuration changes all the time: it is read when it has settled");
        }
        arm(&watch->settle, SETTLE_S);
    } else if (!conf_files_changed(&watch->files)) {
        watch_on(watch);
    } else if (waits_for_content(watch) || !watch->changed(watch->context)) {
        arm(&watch->settle, SETTLE_S);
    }
}

/* ---- life ---- */

struct file_watch *file_watch_new(struct reactor *reactor, file_watch_callback *changed, void *context)
{
    struct file_watch *watch = calloc(1, sizeof *watch);

    if (watch == NULL) {
        return NULL;
    }
    watch->reactor = reactor;
    watch->changed = changed;
    watch->context = context;
    watch->fd = -1;
    evtimer_assign(&watch->look, reactor->base, on_look, watch);
    evtimer_assign(&watch->settle, reactor->base, on_settled, watch);
    return watch;
}

static void watch_none(struct file_watch *watch)
{
    end_inotify(watch);
    event_del(&watch->look);
    event_del(&watch->settle);
}

static void stop(struct file_watch *watch)
{
    watch_none(watch);
    conf_files_free(&watch->files);
}

void file_watch_turn(struct file_watch *watch, bool is_on)
{
    bool was_on = event_pending(&watch->look, EV_TIMEOUT, NULL) || event_pending(&watch->settle, EV_TIMEOUT, NULL);

    if (is_on && !was_on) {
        watch_on(watch);
    } else if (!is_on) {
        watch_none(watch);
    }
}

void file_watch_set(struct file_watch *watch, struct conf_files *files, bool is_on)
{
    stop(watch);
    watch->files = *files;
    *files = (struct conf_files){0};
    if (is_on) {
        watch_on(watch);
    }
}

void file_watch_free(struct file_watch *watch)
{
    stop(watch);
    free(watch);
}
