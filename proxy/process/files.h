/*
 * The files of a process that may give up root: its standard streams, its log, and what a reload will read.
 */
#ifndef HEADGATE_FILES_H
#define HEADGATE_FILES_H

#include "base/privileges.h"
#include "conf/conf.h"

/* Gives the numbers of the standard streams that are closed to /dev/null. */
void files_hold_standard_streams(void);
/* Opens log_file. False with errno set, or if root could not be taken back: then the log says so. */
bool files_open_log(const struct conf *conf, const struct privileges *privileges);
/* Logs which of the files that were read, and of log_file, will not be there for the next reload, now that the process
 * is the other user. */
void files_warn(const struct conf *conf, const struct conf_files *files);

#endif
