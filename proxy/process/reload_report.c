#include "process/reload_report.h"

#include "base/log.h"
#include "conf/conf_table.h"

#include <stdlib.h>

/* ---- faults ---- */

void reload_report_log_warnings(const struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->warning_count; i++) {
        log_warning("main", "%s", faults->warnings[i]);
    }
}

char *reload_report_faults(const struct conf_faults *faults)
{
    char *text = conf_format("%s", "");

    for (size_t i = 0; i < faults->count; i++) {
        char *longer = conf_format("%s%s\n", text, faults->lines[i]);
        free(text);
        text = longer;
    }
    return text;
}

char *reload_report_log_faults(const struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++) {
        log_error("main", "%s", faults->lines[i]);
    }
    return reload_report_faults(faults);
}

/* ---- changes ---- */

/* A line more of what a reload has changed. */
static void add_change(char **changes, const char *what, const char *how)
{
    char *longer = conf_format("%s%s %s\n", *changes, what, how);

    free(*changes);
    *changes = longer;
}

static void report_restart_only(void *context, const char *option)
{
    log_warning("main", "%s was changed in the file; that takes a restart, the old value stays", option);
    add_change(context, option, "was changed in the file; that takes a restart, the old value stays");
}

static void report_change(void *context, const char *what)
{
    log_info("main", "%s is another now", what);
    add_change(context, what, "is another now");
}

static void report_setting(void *context, const char *name)
{
    log_info("main", "%s was set at run time; from now on it is as the file says", name);
    add_change(context, name, "was set at run time; from now on it is as the file says");
}

char *reload_report_merge(const struct conf *old, const struct conf *fresh, const struct conf *merged)
{
    char *changes = conf_format("%s", "");

    conf_restart_only_changes(merged, fresh, report_restart_only, &changes);
    conf_settings(old, report_setting, &changes);
    conf_changes(old, merged, report_change, &changes);
    if (*changes == '\0') {
        add_change(&changes, "nothing", "was changed in the file");
    }
    return changes;
}

static void log_change(void *context, const char *what)
{
    (void)context;
    log_info("main", "%s is another now", what);
}

void reload_report_changes(const struct conf *old, const struct conf *fresh)
{
    conf_changes(old, fresh, log_change, NULL);
}
