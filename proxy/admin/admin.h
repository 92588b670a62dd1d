/*
 * The admin port: speaks RESP, so that redis-cli and any client library can ask. It lives on the main thread and gets
 * what workers know by messages, a little at a time, so that it cannot hold up the data path.
 */
#ifndef HEADGATE_ADMIN_H
#define HEADGATE_ADMIN_H

#include "net/port.h"
#include "worker/servers.h"

struct admin;

/* What the admin port may ask of the process. */
struct admin_host {
    /* Reads the configuration again. NULL if all is well, and *changes has one line for each thing that is another now,
     * or would be after a restart; then taken is called later, once all workers go by it, unless the process ends
     * before. Else the faults. Both are for the caller to free. */
    char *(*reload)(void *context, char **changes, void (*taken)(void *context), void *taken_context);
    /* Sets values at run time, all or none. NULL if they are sound, and taken is called as by a reload. Else the
     * faults, for the caller to free. */
    char *(*change)(void *context, const struct conf_setting *settings, size_t count, void (*taken)(void *context),
                    void *taken_context);
    /* Has all servers drained (servers_drain()), and gives up an upgrade that is under way. */
    void (*drain)(void *context);
    /* Ends the process: drained, or at once. */
    void (*shut_down)(void *context, bool at_once);
    /* Starts a new process that is to take over. NULL: it is on its way, and done is called once, later: why is NULL if
     * it has taken over, else text for a person. Or why there can be none now: a text for the caller to free. */
    char *(*upgrade)(void *context, void (*done)(void *done_context, const char *why), void *done_context);
    /* The configuration in force; valid until the next loop iteration. */
    const struct conf *(*conf)(void *context);
    void *context;
};

/* Opens all of conf->admin, for admin_serve(). NULL with one logged line for each address that cannot be used. source
 * is needed within the call only. */
struct admin *admin_open(struct reactor *reactor, struct servers *servers, const struct conf *conf,
                         const struct admin_host *host, struct port_source *source);
/* Takes its addresses over from who serves there (port.h). False with one logged line. */
bool admin_serve(struct admin *admin);
/* Leaves its addresses to others; connections that there are stay. */
void admin_stop_listening(struct admin *admin);
/* The same, but the sockets that another process has taken over are kept, for admin_resume_listening(). */
void admin_leave_listening(struct admin *admin);
void admin_resume_listening(struct admin *admin);
/* Closes all connections. What the workers have sent back is told before, as far as the sockets take it at once; they
 * must send nothing more: stop the servers first. */
void admin_close(struct admin *admin);

/* The body of the manual page of the port, in the language of base/roff.h: what can be asked, of these policies too,
 * and what is counted. */
void admin_print_manual(FILE *out, const struct policy *const *policies);

#endif
