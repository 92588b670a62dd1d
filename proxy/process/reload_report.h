/*
 * What is told of another configuration: what is wrong with it, or what it has changed. To the log, and as a text for
 * who asked.
 */
#ifndef HEADGATE_RELOAD_REPORT_H
#define HEADGATE_RELOAD_REPORT_H

#include "conf/conf.h"

/* One line for each fault. The caller frees it. */
char *reload_report_faults(const struct conf_faults *faults);
/* The same, and each is logged. */
char *reload_report_log_faults(const struct conf_faults *faults);
void reload_report_log_warnings(const struct conf_faults *faults);

/* merged: what comes into force of fresh, which was read while old was. The text, which is the caller's to free, has
 * one line for each thing that is another now, would be after a restart, or was set at run time and is no longer; each
 * is logged. */
char *reload_report_merge(const struct conf *old, const struct conf *fresh, const struct conf *merged);
/* Logs what is another in fresh, all of which is taken. */
void reload_report_changes(const struct conf *old, const struct conf *fresh);

#endif
