/*
 * An upgrade: the process starts a new one of the program as it is now on disk, hands its sockets over to it, tells it
 * what it knows, and keeps the clients that it has until they go. Nobody is refused or closed.
 *
 *   old process                              new process
 *   starts it ─ sockets ───────────────────► reads its configuration, opens what else there is, starts its workers
 *             ◄─────────────────── READY ─── nobody is served by it as yet
 *             ─ policies, STATE ──────────►
 *             ◄───────────────── SERVING ─── has the sockets for its own, and accepts
 *   leaves its sockets ─ MAIN ─────────────► tells the service manager
 *             ─ what is new ──────────────►
 *             ◄────────────── what is new ── … until the clients of the old one are gone
 *
 * Until SERVING has come the old one serves as if nothing were. Whatever befalls the new one till then, ends it alone.
 * From then on the old one is its guard: it keeps the sockets, without accepting at them, and serves again should the
 * new one crash. RELEASE tells it that a third one has taken over, or that nobody is to serve any more: then it closes
 * them.
 * Main thread only.
 */
#ifndef HEADGATE_HANDOVER_H
#define HEADGATE_HANDOVER_H

#include "net/port.h"
#include "process/handover_line.h"
#include "process/handover_share.h"
#include "process/supervisor.h"

#include <sys/types.h>

/* What a hand-over may ask of the process. */
struct handover_host {
    const struct conf *(*conf)(void *context); /* in force */
    /* Another process serves from now on: this one is to accept nobody, and to end when its clients are gone. Ports
     * that the other one has taken have been left, and their sockets stay open, until … */
    void (*given)(void *context);
    /* … either they are to be closed, or … */
    void (*release)(void *context);
    /* … the other one has crashed, and this one is to serve again: the ports have been taken back. */
    void (*taken_back)(void *context);
    /* The process before this one has said to the service manager that this one is the service. */
    void (*is_service)(void *context);
    /* The new process wants this one to … */
    void (*drain)(void *context);
    void (*reload)(void *context);
    void (*reopen_log)(void *context);
    void *context;
};

/* How an upgrade went: NULL, or why there was none: text for a person, perhaps of several lines. */
typedef void handover_done(void *context, const char *why);

enum handover_phase {
    HANDOVER_NONE,
    HANDOVER_STARTING, /* the new process is on its way to READY */
    HANDOVER_TELLING,  /* … to SERVING */
    HANDOVER_GIVEN
};

struct handover {
    const char *program; /* as this one was started */
    const char *conf_path;
    struct handover_host host;
    struct reactor *reactor;
    struct servers *servers;
    struct port_list *ports;
    struct supervisor *supervisor;
    struct handover_line predecessor;
    struct handover_line successor;
    struct handover_share share;
    bool is_open;
    bool awaits_service; /* is_service() is yet to be called */
    bool is_guard;       /* has the sockets of the one behind, and serves should that one crash */
    bool has_guard;      /* the one before is so to this one */
    enum handover_phase phase;
    pid_t child;
    struct event patience;
    int64_t ending_us;   /* until when the new process, which has closed its line, may take to end */
    char *taken;         /* of READY: a digit for each socket, 1 if it is used */
    char *faults;        /* what the new process has said of itself */
    handover_done *done; /* … of the upgrade that is under way */
    void *done_context;
};

/* Takes what the environment says of a process before this one, and its sockets to *source. False: there is one, and
 * it cannot be understood; that was printed. program, conf_path: for the next process; NULL: no file. */
bool handover_of_process(struct handover *handover, const char *program, const char *conf_path,
                         struct port_source *source);
bool handover_has_predecessor(const struct handover *handover);
/* Tells the process before this one why this one cannot serve. */
void handover_fail(struct handover *handover, const char *why);

/* For when the servers have been started. False with one logged line. */
bool handover_open(struct handover *handover, const struct handover_host *host, struct reactor *reactor,
                   struct servers *servers, struct port_list *ports, struct supervisor *supervisor);
/* All is in place: takes over from the process before this one, if there is one. source: as handover_of_process() has
 * filled it, and the addresses have been looked for in it. False with one logged line. */
bool handover_take(struct handover *handover, const struct port_source *source);
/* This one serves from now on. */
void handover_serves(struct handover *handover);

/* Starts a new process. NULL: done, unless it is NULL, is called once, later. Or why there can be no upgrade now: for
 * the caller to free.
 */
char *handover_start(struct handover *handover, handover_done *done, void *context);
/* Ends what is under way, and with it the new process, unless that one serves. */
void handover_abandon(struct handover *handover, const char *why);
bool handover_is_given(const struct handover *handover);
bool handover_is_guard(const struct handover *handover);
/* This process is none any more, nor has one: it ends, or is taken out of service. */
void handover_release(struct handover *handover);
/* Whether nothing is about to be told to the new process, nor of it to the service manager. */
bool handover_is_told(const struct handover *handover);

/* The process before this one is to do the same: nothing happens if there is none. */
void handover_pass_on(struct handover *handover, const char *order);
#define HANDOVER_DRAIN "DRAIN" /* … while a third one serves */
#define HANDOVER_END "END"     /* … and nobody serves from then on */
#define HANDOVER_RELOAD "RELOAD"
#define HANDOVER_REOPEN "REOPEN"

/* The last words, while the servers are still there. */
void handover_say_goodbye(struct handover *handover);
/* The workers must have been stopped. */
void handover_close(struct handover *handover);

#endif
