/*
 * Tells when the files of a configuration have changed: by inotify on the directories that they and links to them stand
 * in, as editors, certbot and Kubernetes put a new file or link in the place of the old one; and by a look once in a
 * while, for what inotify does not tell of, or where it is not to be had.
 *
 * A file that is just being written is left to settle: what counts is that two looks find the same. However often files
 * are written, they are looked at once a second.
 */
#ifndef HEADGATE_FILE_WATCH_H
#define HEADGATE_FILE_WATCH_H

#include "conf/conf_files.h"
#include "event/reactor.h"

struct file_watch;

/* Something has changed. What was read thereupon goes to file_watch_set(); false: it was no time to read, so ask again
 * later. */
typedef bool file_watch_callback(void *context);

/* Watches nothing yet. NULL when memory is short. */
struct file_watch *file_watch_new(struct reactor *reactor, file_watch_callback *changed, void *context);
void file_watch_free(struct file_watch *watch);

/* Watches these files from now on, which were found as the list says, in place of those before. The list is emptied:
 * what is in it is the watch's now. is_on false: watches none. */
void file_watch_set(struct file_watch *watch, struct conf_files *files, bool is_on);
/* Watches those that were given last, or none. */
void file_watch_turn(struct file_watch *watch, bool is_on);

#endif
