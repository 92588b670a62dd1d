/*
 * The configuration that is in force, and how it comes to be another one: the file is read again, or values are set at
 * run time. Workers take it over one by one, and until all have, there can be no further one. Main thread only.
 */
#ifndef HEADGATE_RELOAD_H
#define HEADGATE_RELOAD_H

#include "event/file_watch.h"
#include "process/handover.h"

/* The first group is set by who has it. */
struct reload {
    const char *path; /* of the file; NULL: defaults */
    const struct policy *const *policies;
    struct conf *conf; /* in force */
    struct mailbox *mailbox;
    struct servers *servers;
    struct expiry *expiry; /* of certificates that servers have in common */
    struct supervisor *supervisor;
    struct handover *handover;
    const bool *has_ended; /* the process: what workers say then is not heard any more */
    size_t descriptors;    /* in use at the start */

    struct file_watch *watch;     /* of the files of the configuration */
    struct conf *before;          /* the last one, as long as a worker may still use it */
    size_t acknowledged;          /* workers that have taken over the new one */
    void (*taken)(void *context); /* to be called when all have; NULL: nobody waits */
    void *taken_context;
    bool is_wanted; /* while the last one was still under way */
};

/* Reads the file, which changes nothing. NULL: it has faults. *faults is for the caller to free in any case. */
struct conf *reload_read(const char *path, const struct policy *const *policies, struct conf_faults *faults);

/* Watches no files yet. False when memory is short. */
bool reload_open(struct reload *reload, struct reactor *reactor);
/* Frees the configurations, too. Harmless if it was not opened. */
void reload_close(struct reload *reload);
/* Watches these files, also what could not be read: it may be there soon. Their list is emptied. */
void reload_watch(struct reload *reload, struct conf_faults *faults);
/* For STATS of each server: when there is another configuration, as there is at the start. */
void reload_note(struct reload *reload);

/* As in struct admin_host; changes and taken may be NULL. */
char *reload_now(struct reload *reload, char **changes, void (*taken)(void *context), void *taken_context);
char *reload_change(struct reload *reload, const struct conf_setting *settings, size_t count,
                    void (*taken)(void *context), void *taken_context);
/* For those who are told nothing, as by a signal: one that cannot be done now is done afterwards. */
void reload_soon(struct reload *reload);

#endif
